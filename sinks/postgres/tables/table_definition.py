"""What a table demands of its rows, to create one elsewhere that refuses the same rows.

Enums and domains of its columns come with it. Foreign keys and triggers depend on other
objects outside of the table. They are left out, and their names are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.tables", "table_definition.sql")

_Connection = psycopg.Connection[TupleRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """A table, as the server that holds it describes it.

    Attributes:
        table: Its name, as the pipeline writes it.
        columns: The name of each column, and the text after it in CREATE TABLE.
        constraints: The name of each constraint, and the text after it in ADD
            CONSTRAINT; keys before checks.
        indexes: The statements that create the unique indexes, which refuse rows.
        left_out: Foreign keys and triggers, which cannot be created elsewhere.
        types: The schema, the name, and the text after CREATE of each enum and domain
            that its columns are of, each after those that it is made of.
    """

    table: str
    columns: tuple[tuple[str, str], ...]
    constraints: tuple[tuple[str, str], ...]
    indexes: tuple[str, ...]
    left_out: tuple[str, ...]
    types: tuple[tuple[str, str, str], ...] = ()


def read_table_definitions(
    connection: _Connection, tables: Iterable[str]
) -> list[TableDefinition]:
    """Read the definitions of the tables that exist.

    Raises:
        RetryableError: The server went away.
    """
    with translated("reading the result tables"), connection.transaction():
        found = [_read(connection, table) for table in tables]
    return [one for one in found if one.columns]


def create_defined_table(
    connection: _Connection, definition: TableDefinition
) -> list[str]:
    """Create the table, with all parts that can be created here; the caller commits.

    Returns:
        The parts that were left out. A part that refers to types or functions that this
        database lacks has the reason with it; if it is a column, the table is not
        created at all.
    """
    left_out = list(definition.left_out)
    for schema, name, text in definition.types:
        problem = _create_type(connection, schema, name, text)
        if problem is not None:
            left_out.append(f"type {name}: {problem}")
    table = table_identifier(definition.table)
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), _as_written(text))
        for name, text in definition.columns
    )
    statement = sql.SQL("CREATE TABLE {} ({})").format(table, columns)
    problem = _try(connection, statement)
    if problem is not None:
        return [*left_out, f"the table itself: {problem}"]
    adding = sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}")
    for name, text in definition.constraints:
        statement = adding.format(table, sql.Identifier(name), _as_written(text))
        problem = _try(connection, statement)
        if problem is not None:
            left_out.append(f"constraint {name}: {problem}")
    for text in definition.indexes:
        problem = _try(connection, sql.Composed([_as_written(text)]))
        if problem is not None:
            left_out.append(f"an index: {problem}")
    return left_out


def create_schemas(connection: _Connection, tables: Sequence[str]) -> None:
    """Create the schemas that the names of tables begin with; the caller commits."""
    for schema in sorted({table.split(".")[0] for table in tables if "." in table}):
        connection.execute(_schema(schema))


def define_tables(
    dsn: str, statements: str, tables: Iterable[str]
) -> list[TableDefinition]:
    """Execute statements in a database of no other use; return the tables they create.

    Args:
        dsn: The database.
        statements: SQL, such as people's migrations.
        tables: The names of tables; those that are not there are left out.

    Raises:
        ConfigurationError: ``TABLES_NOT_CREATED``: Postgres refuses a statement.
        RetryableError: The server went away.
    """
    with connect(dsn, application_name="tallyweir tables") as connection:
        try:
            connection.execute(statements.encode())
        except psycopg.Error as error:
            said = error.diag.message_primary or type(error).__name__
            raise ConfigurationError(
                "TABLES_NOT_CREATED",
                saw=f"Postgres refuses the statements that create tables: {said}",
                why="Cases are checked against these tables.",
                fix="Correct the file; it is executed in an empty database.",
            ) from None
        return read_table_definitions(connection, tables)


def _create_type(
    connection: _Connection, schema: str, name: str, text: str
) -> str | None:
    """Create a type if it is not there; return why that failed."""
    found = connection.execute("SELECT to_regtype(%s)", (name,)).fetchone()
    if found != (None,):
        return None
    problem = _try(connection, _schema(schema))
    return problem or _try(connection, sql.Composed([_as_written(f"CREATE {text}")]))


def _schema(name: str) -> sql.Composed:
    return sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(name))


def _read(connection: _Connection, table: str) -> TableDefinition:
    values = {"table": table_identifier(table).as_string(connection)}

    def pairs(statement: str) -> tuple[tuple[str, str], ...]:
        rows = connection.execute(_SQL[statement], values).fetchall()
        return tuple((name, text) for name, text in rows)

    types = connection.execute(_SQL["types"], values).fetchall()
    return TableDefinition(
        table=table,
        types=tuple((schema, name, text) for schema, name, text in types),
        columns=pairs("columns"),
        constraints=pairs("constraints"),
        indexes=tuple(text for _, text in pairs("unique_indexes")),
        left_out=tuple(f"{kind} {name}" for name, kind in pairs("left_out")),
    )


def _try(connection: _Connection, statement: sql.Composed) -> str | None:
    """Execute a statement; if it fails, return the reason."""
    try:
        with connection.transaction():
            connection.execute(statement)
    except (psycopg.ProgrammingError, psycopg.NotSupportedError) as error:
        return error.diag.message_primary or type(error).__name__
    return None


def _as_written(text: str) -> sql.SQL:
    # Postgres itself wrote the text from its catalog, so it is one expression and
    # cannot end the statement. It is executed in a scratch database.
    return sql.SQL(text)
