"""The schemas of the registry that the home keeps, so that payloads need no other."""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

_SQL = load_statements("tallyweir.sinks.postgres.ledger", "registered_schemas.sql")
_NAME = "tallyweir registered schemas"


def read_registered(connection: Connection[TupleRow]) -> tuple[RegisteredSchema, ...]:
    """Return all schemas that the home keeps, by rising id; none before a migration."""
    if not fetch_row(connection, _SQL["is_there"])[0]:
        return ()
    return tuple(map(_schema, connection.execute(_SQL["all"])))


def find_registered(dsn: str) -> tuple[RegisteredSchema, ...]:
    """Return the same as ``read_registered``, over a connection of its own.

    Raises:
        ConfigurationError, RetryableError: As ``connect`` does.
    """
    with (
        translated("reading the registry's schemas"),
        connect(dsn, application_name=_NAME) as connection,
    ):
        return read_registered(connection)


def keep_registered(dsn: str, schema: RegisteredSchema) -> RegisteredSchema:
    """Keep a schema, unless its id is taken; return the one that the home keeps.

    A home that was never migrated keeps nothing, and the schema itself is returned.

    Raises:
        ConfigurationError, RetryableError: As ``connect`` does.

    Crash:
        The schema is kept or not; the next call finds out.
    """
    values = {
        "schema_id": schema.schema_id,
        "kind": schema.kind,
        "schema": schema.text,
        "referred": Jsonb([list(one) for one in schema.references]),
    }
    with (
        translated("keeping a schema of the registry"),
        connect(dsn, application_name=_NAME) as connection,
    ):
        if not fetch_row(connection, _SQL["is_there"])[0]:
            return schema
        connection.execute(_SQL["keep"], values)
        kept = fetch_row(connection, _SQL["one"], values)
        connection.commit()
    return _schema(kept)


def _schema(row: TupleRow) -> RegisteredSchema:
    schema_id, kind, text, referred = row
    return RegisteredSchema(
        schema_id=schema_id,
        kind=kind,
        text=text,
        references=tuple((name, schema) for name, schema in referred),
    )
