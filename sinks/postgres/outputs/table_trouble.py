"""Finds out why a statement on result tables has failed, and reports the cause.

A user may change or lock a table while a driver writes to it. The statement's error
says what failed; the system catalog of Postgres says what is wrong with the table.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.output import Output, tables_of
from tallyweir.sinks.postgres.outputs.result_tables import check_result_tables
from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.connection import abandon
from tallyweir.sinks.postgres.server.sqlstate import translate
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.table_owners import find_claims_holder
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)

_SQL = load_statements("tallyweir.sinks.postgres.tables", "insertable.sql")
_PUBLISH = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")

_Connection = psycopg.Connection[TupleRow]

#: Errors that a changed table may cause: about names and types, about a missing schema,
#: or about a feature that another kind of table does not support.
_OF_DEFINITION = ("42", "3F", "0A")


def explain_failure(
    connection: _Connection,
    outputs: Sequence[Output],
    error: psycopg.Error,
    *,
    doing: str,
) -> TallyweirError:
    """Turn the error of a statement on result tables into one that names its cause.

    Ends the transaction.

    Args:
        connection: The connection that the statement was executed by.
        outputs: The outputs whose tables it may have been about.
        error: What psycopg raised.
        doing: What was attempted.
    """
    state = error.sqlstate or ""
    abandon(connection)
    if connection.closed:
        return translate(error, doing=doing)
    found: TallyweirError | None = None
    try:
        if isinstance(error, psycopg.errors.LockNotAvailable):
            found = _find_lock(connection, outputs, doing) or find_claims_holder(
                connection, doing=doing
            )
        elif state.startswith(_OF_DEFINITION):
            check_unchanged(connection, outputs)
    except TallyweirError as changed:
        found = changed
    except psycopg.Error:
        # Report the error that was seen first.
        found = None
    abandon(connection)
    return found or translate(error, doing=doing)


def check_unchanged(connection: _Connection, outputs: Sequence[Output]) -> None:
    """Check that a start would still accept the tables, and end the transaction.

    Raises:
        ConfigurationError: ``TABLE_CHANGED``.
        psycopg.Error: The server or the connection failed.
    """
    try:
        connection.execute(_PUBLISH["begin_settings"])
        check_result_tables(connection, outputs)
    except ConfigurationError as changed:
        raise ConfigurationError(
            "TABLE_CHANGED",
            saw=(
                f"A table was changed while the driver was writing to it. {changed.saw}"
            ),
            why=f"{changed.why} Nothing of the batch is published, and no event has "
            "become a dead letter.",
            fix=f"{changed.fix} Then restart the driver.",
        ) from changed
    finally:
        abandon(connection)


def _find_lock(
    connection: _Connection, outputs: Sequence[Output], doing: str
) -> RetryableError | None:
    """Report the role and process that lock a table; None if it is not locked now."""
    tables = [
        table_identifier(table).as_string(connection) for table in tables_of(outputs)
    ]
    row = connection.execute(_SQL["lock_holders"], {"tables": tables}).fetchone()
    if row is None:
        return None
    table, mode, pid, role, program, since, query = row
    whose = f"{role}, pid {pid} {program}".rstrip() if pid else role
    return RetryableError(
        "TABLE_LOCKED",
        saw=f"Table {table} was locked for 30 s while {doing}: {whose} has a {mode} "
        f"in a transaction since {since}" + (f", last with: {query}" if query else ""),
        why="The pipeline writes to the table, so it waits.",
        fix=(
            "If that transaction ends by itself, nothing: the driver then continues. "
            "Otherwise end it"
        )
        + (f", or SELECT pg_terminate_backend({pid});" if pid else "."),
    )
