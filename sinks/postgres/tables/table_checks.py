"""What a user's own table may do to rows: refuse, skip, change or delay them.

Tables that do so to every batch are refused when a driver starts. Otherwise a batch
notices it row by row:

- A rule or a trigger may replace or skip what is written (``check_insertable``).
- Assignment to another type silently rounds to the scale of a numeric, cuts fractions
  of a second and pads text. Where a type may do so, each value is cast to it and back
  before it is written. A value that comes back changed is refused, as if the table had
  refused its row (``exact_source``).
- All branches of a batch are prepared before any of them commits. So a row that waits
  for a row of another branch waits for its own batch until a timeout ends the wait, and
  every retry of the batch waits again (``check_branchable``).
- Tasks that copy rows straight into a table, at least once, repeat rows
  (``check_copyable``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.columns import (
    POSITION_COLUMNS,
    Column,
    table_identifier,
    type_name,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError

_INSERTABLE = load_statements("tallyweir.sinks.postgres.tables", "insertable.sql")

_Connection = psycopg.Connection[TupleRow]


class RowSkippedError(psycopg.DataError):
    """A table took fewer rows than it was given, and raised no error.

    Attributes:
        taken: Number of rows that it took.
    """

    #: The general data exception, because SQLSTATE has no code for this case.
    sqlstate = "22000"

    def __init__(self, taken: int) -> None:
        self.taken = taken
        super().__init__("a trigger of the table took no row and raised no error")


def check_insertable(connection: _Connection, table: str, *, is_updated: bool) -> None:
    """Refuse a table on which a rule or a trigger replaces each write.

    Args:
        connection: A connection to its database.
        table: Its name.
        is_updated: Whether batches also update and delete its rows.

    Raises:
        ConfigurationError: ``TABLE_HAS_RULE``.
    """
    found = connection.execute(
        _INSERTABLE["in_place_of_writes"],
        {
            "table": table_identifier(table).as_string(connection),
            "events": ["2", "3", "4"] if is_updated else ["3"],
        },
    ).fetchall()
    if found:
        what = ", ".join(f"{kind} {name}" for kind, name in found)
        raise ConfigurationError(
            "TABLE_HAS_RULE",
            saw=f"Table {table} has the {what}.",
            why="It replaces what the pipeline writes, so the pipeline could not know "
            "which rows are in the table.",
            fix="Drop it, or name another table. A BEFORE INSERT trigger may change "
            "rows, refuse them, or skip them.",
        )


def may_skip_rows(connection: _Connection, table: str) -> bool:
    """Tell whether a trigger of the table could skip rows that are written."""
    quoted = table_identifier(table).as_string(connection)
    row = connection.execute(
        _INSERTABLE["has_row_trigger"], {"table": quoted}
    ).fetchone()
    return row is not None


def skips_rows(table: str, skipped: int) -> ConfigurationError:
    """Explain that a table skipped rows that it must take, or all of a batch."""
    return ConfigurationError(
        "TABLE_SKIPS_ROWS",
        saw=f"Table {table} silently skipped {skipped} rows: a BEFORE trigger "
        "returned NULL.",
        why="Rows of windows, functions and joins come from many events, so none can "
        "be left out as a dead letter; and an append table that accepts no row "
        "of a batch would turn the whole topic into dead letters.",
        fix="Let the trigger return NEW, or drop it. If it moves rows to another "
        "table, partition the table instead, or name the other table in the "
        "pipeline file.",
    )


def raises_always(
    table: str, cause: psycopg.Error, connection: _Connection
) -> ConfigurationError:
    """Explain that a table refuses even a statement without rows."""
    quoted = table_identifier(table).as_string(connection)
    triggers = connection.execute(_INSERTABLE["statement_triggers"], {"table": quoted})
    names = ", ".join(name for (name,) in triggers) or "none"
    return ConfigurationError(
        "TABLE_REFUSES_ALL",
        saw=f"Table {table} refuses even an INSERT without rows: {cause.sqlstate} "
        f"{cause.diag.message_primary}. Its statement triggers: {names}.",
        why="It would refuse every batch.",
        fix="Drop or disable the trigger, or name another table.",
    )


_RESULT_TABLES = load_statements("tallyweir.sinks.postgres.tables", "result_tables.sql")


def check_branchable(
    connection: _Connection,
    tables: Iterable[str],
    split: Mapping[str, Sequence[Column]],
) -> None:
    """Refuse tables whose branches could wait for each other, or miss rows.

    Args:
        connection: A connection to a database in which all of the tables exist.
        tables: The pipeline's tables in that database.
        split: The tables among them that several transactions of the database publish,
            with the columns that the pipeline writes.

    Raises:
        ConfigurationError: ``TABLE_REFUSES_BRANCHES``.
    """
    for table, columns in split.items():
        _check_keys(connection, table, columns)
    if split:
        _check_references(
            connection, _quoted(connection, tables), _quoted(connection, split)
        )


def _quoted(connection: _Connection, tables: Iterable[str]) -> list[str]:
    return [table_identifier(table).as_string(connection) for table in tables]


def _check_keys(connection: _Connection, table: str, columns: Sequence[Column]) -> None:
    """Refuse keys on which rows of two events may conflict."""
    keys = connection.execute(
        _RESULT_TABLES["keys_over"],
        {
            "table": table_identifier(table).as_string(connection),
            "columns": sorted(column.name for column in columns),
            # No two events have one position.
            "apart": [column.name for column in POSITION_COLUMNS],
        },
    ).fetchall()
    if keys:
        raise _refused(
            f"Table {table} has the unique key {', '.join(key for (key,) in keys)}.",
            "Rows of one batch that have the same key would wait for each other in "
            "different branches, which commit together.",
        )


def _check_references(
    connection: _Connection, tables: list[str], split: list[str]
) -> None:
    """Refuse foreign keys to rows that another branch is about to publish."""
    found = connection.execute(
        _RESULT_TABLES["keys_between"], {"tables": tables, "split": split}
    ).fetchall()
    for table, referenced, key in found:
        raise _refused(
            f"Table {table} has the foreign key {key} to {referenced}, and both are "
            "tables of this pipeline.",
            (
                "A branch does not see the rows that other branches publish with it, "
                "so Postgres would refuse valid rows."
            ),
        )


def _refused(saw: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        "TABLE_REFUSES_BRANCHES",
        saw=saw,
        why=why,
        fix="Write branches: 1, or drop the key.",
    )


def check_copyable(
    connection: psycopg.Connection[TupleRow], table: str, columns: Sequence[Column]
) -> None:
    """Refuse a table whose types COPY does not fit, or whose keys refuse repeated rows.

    Args:
        connection: A connection to its database.
        table: Its name.
        columns: The columns that tasks copy.

    Raises:
        ConfigurationError: ``TABLE_TYPES_DIFFER``, ``TABLE_REFUSES_REPEATS``.
    """
    quoted = table_identifier(table).as_string(connection)
    wanted = {column.name: column.postgres_type for column in columns}
    types = connection.execute(
        _RESULT_TABLES["column_types"], {"table": quoted}
    ).fetchall()
    differing = [
        f"{name} is {kind}, not {wanted[name]}"
        for name, kind in types
        if wanted.get(name, kind) != kind
    ]
    if differing:
        raise ConfigurationError(
            "TABLE_TYPES_DIFFER",
            saw=f"In table {table}, {'; '.join(differing)}.",
            why="With at_least_once, tasks copy rows directly into the table, and "
            "COPY does not convert types.",
            fix="Give the table these types, or write guarantee: exactly_once.",
        )
    keys = connection.execute(
        _RESULT_TABLES["keys_over"],
        {"table": quoted, "columns": sorted(wanted), "apart": None},
    ).fetchall()
    if keys:
        raise ConfigurationError(
            "TABLE_REFUSES_REPEATS",
            saw=f"Table {table} has the unique key "
            f"{', '.join(key for (key,) in keys)}.",
            why="With at_least_once, a batch that runs again repeats its rows, and "
            "the key would turn them into dead letters.",
            fix="Drop the key, or write guarantee: exactly_once.",
        )


_EXACT_VALUES = load_statements("tallyweir.sinks.postgres.tables", "exact_values.sql")


_TEXTS = frozenset({"text", "character varying"})
_INSTANTS = frozenset({"timestamp with time zone", "timestamp without time zone"})
#: For each type that a pipeline writes, the other types that hold all of its values.
#: Connections use UTC, so an instant is the same with a time zone and without.
_HELD_BY: Mapping[str, frozenset[str]] = {
    "smallint": frozenset({"integer", "bigint", "numeric", "real", "double precision"}),
    "integer": frozenset({"bigint", "numeric", "double precision"}),
    "bigint": frozenset({"numeric"}),
    "real": frozenset({"double precision"}),
    "text": _TEXTS,
    "date": _INSTANTS,
    **dict.fromkeys(_INSTANTS, _INSTANTS),
}
#: Pairs of a type that is written and a column's type that changes nearly every value.
_HOPELESS = frozenset(
    {
        ("numeric", "real"),
        ("numeric", "double precision"),
        ("double precision", "real"),
    }
)


class TypesChangedError(psycopg.DataError):
    """The types of a table changed before the statement that writes to it locked them.

    Attributes:
        sqlstate: That of a statement that does not fit, or of one worth a retry.
    """

    def __init__(self, table: str, sqlstate: str) -> None:
        self.sqlstate = sqlstate
        super().__init__(f"the types of table {table} changed under its rows")


#: Types whose input functions read one value from a text, in any session the same.
_READ_FROM_TEXT = frozenset(
    {
        *("uuid", "json", "inet", "cidr", "macaddr", "macaddr8", "enum", "enum[]"),
        *("text[]", "uuid[]", "boolean[]", "smallint[]", "integer[]", "bigint[]"),
    }
)
#: Types whose input functions read more texts than say one value exactly, each with the
#: condition that tells these.
_READ_IF = {
    "date": "holds_date",
    "time without time zone": "holds_time",
    "jsonb": "holds_json",
}
_HAS_IS_JSON = 160_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """The type of a column of a table.

    Attributes:
        declared: The type as Postgres writes it, with its modifier.
        base: For a domain, the type that it is based on; otherwise the same type.
        family: ``base`` without its modifier; ``enum`` for each enum.
        is_array: Whether ``base`` is an array.
    """

    declared: str
    base: str
    family: str
    is_array: bool

    def holds(self, produced: str) -> bool:
        """Tell whether the column holds every value of a type unchanged."""
        return self.base == produced or self.base in _HELD_BY.get(produced, ())

    @property
    def is_read_from_text(self) -> bool:
        """Whether a cast reads a text's value exactly, or fails."""
        return self.base in _READ_FROM_TEXT or self.family.startswith("enum")


def read_types(connection: _Connection, table: str) -> dict[str, ColumnType]:
    """Read the type of each column of a table."""
    name = table_identifier(table).as_string(connection)
    rows = connection.execute(_EXACT_VALUES["types"], {"table": name}).fetchall()
    return {
        column: ColumnType(declared=declared, base=base, family=family, is_array=array)
        for column, declared, base, family, array in rows
    }


def unfit_types(
    connection: _Connection, table: str, columns: Sequence[Column], *, per_value: bool
) -> list[str]:
    """Name columns of a table whose types may change the values written to them.

    Args:
        connection: A connection to its database.
        table: A table that exists.
        columns: The columns that the pipeline writes.
        per_value: Whether a single value can be refused; if so, the result has only
            columns whose types would change nearly every value.
    """
    types = read_types(connection, table)
    return [
        f"{column.name} is {found.declared}, not {column.postgres_type}"
        for column in columns
        if (found := types.get(column.name)) is not None
        and not found.holds(column.postgres_type)
        and (not per_value or (column.postgres_type, found.base) in _HOPELESS)
    ]


def exact_sources(
    connection: _Connection, table: str, columns: Sequence[Column]
) -> sql.Composed:
    """List the staged source of each column, guarded where its value could change."""
    sources = [column.from_staging for column in columns]
    return sql.SQL(", ").join(
        source for source, _ in guarded(connection, table, columns, sources)
    )


def guarded(
    connection: _Connection,
    table: str,
    columns: Sequence[Column],
    sources: Sequence[sql.Composable],
) -> list[tuple[sql.Composable, ColumnType | None]]:
    """Guard the source of each column where the column could change or refuse a value.

    Returns:
        For each column its source, and the column's type if the source is guarded.
    """
    types = read_types(connection, table)
    has_is_json = connection.info.server_version >= _HAS_IS_JSON
    found: list[tuple[sql.Composable, ColumnType | None]] = []
    for column, source in zip(columns, sources, strict=True):
        kind = types.get(column.name)
        block = None if kind is None else _guard_of(column, kind)
        if kind is None or block is None:
            found.append((source, None))
            continue
        if block == "holds_json" and not has_is_json:
            block = "holds_json_15"
        values = {
            "source": source,
            # Postgres itself wrote this name from its catalog.
            "type": sql.SQL(kind.declared),
            "produced": type_name(column.postgres_type),
            "name": sql.Literal(column.name),
            "declared": sql.Literal(kind.declared),
        }
        guard = _EXACT_VALUES[block].format(**values)
        if block.startswith("holds_"):
            guard = _EXACT_VALUES["read_from_text"].format(**values, holds=guard)
        found.append((guard, kind))
    return found


def _guard_of(column: Column, found: ColumnType) -> str | None:
    """Name the block that puts a column's values into a type; None if each fits."""
    if found.holds(column.postgres_type):
        return None if found.declared == found.base else "cast"
    if column.postgres_type == "text" and found.is_read_from_text:
        return "cast"
    if column.postgres_type == "text" and found.family in _READ_IF:
        return _READ_IF[found.family]
    if column.postgres_type == "jsonb" and found.is_array:
        return "array_from_json"
    is_padded = found.base.startswith(("character(", "bpchar"))
    return "guarded_padded" if is_padded else "guarded"
