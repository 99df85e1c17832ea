"""Columns of the tables that a pipeline writes, and how their names are quoted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements

_SQL = load_statements("tallyweir.sinks.postgres.server", "columns.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column as the pipeline wants it.

    ``postgres_type`` comes from this package's own list of types, never from a user.
    ``is_text`` says that tasks have its values as text, because Arrow has no type that
    holds all of them. The text is cast while the row is moved to its table.
    """

    name: str
    postgres_type: str
    is_text: bool = False

    @property
    def staging_type(self) -> str:
        # Binary COPY of jsonb needs a version byte that Arrow's encoder does not write.
        is_text = self.is_text or self.postgres_type == "jsonb"
        return "text" if is_text else self.postgres_type

    @property
    def definition(self) -> sql.Composable:
        return sql.SQL("{} {}").format(
            sql.Identifier(self.name), type_name(self.postgres_type)
        )

    @property
    def staging_definition(self) -> sql.Composable:
        return sql.SQL("{} {}").format(
            sql.Identifier(self.name), type_name(self.staging_type)
        )

    @property
    def from_staging(self) -> sql.Composable:
        """The column read from its staging table, as the target's type."""
        if self.staging_type == self.postgres_type:
            return sql.Identifier(self.name)
        name = sql.Identifier(self.name)
        return sql.SQL("{}::{}").format(name, type_name(self.postgres_type))

    @property
    def as_json(self) -> sql.Composable:
        """The column read from its staging table, as JSON writes its values.

        Bytes are written in base64, times and intervals as their texts. Nested values
        are JSON already, and ``json`` takes them as they are, where ``jsonb`` would
        refuse an escaped zero.
        """
        name = sql.Identifier(self.name)
        if self.postgres_type == "jsonb":
            return sql.SQL("{0}::json AS {0}").format(name)
        if self.is_text and self.postgres_type == "numeric":
            return sql.SQL("{0}::numeric AS {0}").format(name)
        if self.postgres_type == "bytea":
            return sql.SQL(
                "translate(encode({0}, 'base64'), E'\\n', '') AS {0}"
            ).format(name)
        return name


#: Position of a result row's record: the last columns of every append table.
POSITION_COLUMNS = (
    Column(name="kafka_topic", postgres_type="text"),
    Column(name="kafka_partition", postgres_type="integer"),
    Column(name="kafka_offset", postgres_type="bigint"),
)

_TYPE_NAMES = {
    name: sql.SQL(name)
    for name in (
        "bigint",
        "boolean",
        "bytea",
        "date",
        "double precision",
        "integer",
        "interval",
        "jsonb",
        "numeric",
        "real",
        "smallint",
        "text",
        "time without time zone",
        "timestamp without time zone",
        "timestamp with time zone",
    )
}


#: Bytes of a value, for types of fixed width.
_WIDTHS = {
    "bigint": 8,
    "double precision": 8,
    "timestamp without time zone": 8,
    "timestamp with time zone": 8,
    "date": 4,
    "integer": 4,
    "real": 4,
    "smallint": 2,
    "boolean": 1,
}


def packed(columns: Iterable[Column]) -> list[Column]:
    """Put columns into the order in which a row is read and written fastest.

    Postgres must search each row for a column that follows one of variable width. With
    the wider columns first, rows need no padding.
    """
    return sorted(columns, key=lambda column: -_WIDTHS.get(column.staging_type, 0))


def type_name(postgres_type: str) -> sql.SQL:
    """Return the type as SQL; only types of this module's list are known."""
    return _TYPE_NAMES[postgres_type]


def table_identifier(table: str) -> sql.Identifier:
    """Quote ``schema.table``, or ``table`` of the schema public."""
    return sql.Identifier(*qualified(table).split(".", 1))


def qualified(table: str) -> str:
    """Return ``schema.table``; a table without a schema is in ``public``."""
    return table if "." in table else f"public.{table}"


def names(columns: Iterable[Column]) -> sql.Composed:
    """List column names, quoted, separated by commas."""
    return sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)


def names_and_types(columns: Iterable[Column]) -> list[list[str]]:
    """List columns for JSON."""
    return [[column.name, column.postgres_type] for column in columns]


def is_there(connection: Connection[TupleRow], table: sql.Identifier) -> bool:
    """Tell whether a name is that of a table or view that can be read."""
    quoted = table.as_string(connection)
    return bool(fetch_row(connection, _SQL["is_there"], {"table": quoted})[0])


def columns_of(
    connection: Connection[TupleRow], table: sql.Identifier
) -> dict[str, str]:
    """Return the columns of a table with their types; empty if there is no table.

    The types are without modifiers, such as a length or a precision.
    """
    quoted = table.as_string(connection)
    return dict(connection.execute(_SQL["columns_of"], {"table": quoted}).fetchall())
