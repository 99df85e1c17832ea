"""Creates the tables that a pipeline writes, or checks those that exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.server.columns import (
    Column,
    names,
    qualified,
    table_identifier,
    type_name,
)
from tallyweir.sinks.postgres.server.naming import database_of
from tallyweir.sinks.postgres.server.sqlstate import is_row_rejection
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.table_checks import (
    check_branchable,
    check_insertable,
    guarded,
    raises_always,
    unfit_types,
)
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.tables", "result_tables.sql")

_Connection = psycopg.Connection[TupleRow]

#: Errors that mean the same for every table, and are explained elsewhere.
_OTHERWISE_TOLD = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.InvalidSchemaName,
)


def create_result_tables(
    connection: _Connection,
    outputs: Iterable[Output],
    state: Callable[[str], sql.Identifier],
) -> None:
    """Make every table of some outputs exist with the columns that it needs.

    The caller commits. An existing table is used if it has every wanted column, each of
    them is assignable, and every other column may stay empty. The user's own indexes,
    constraints and triggers are left alone.

    Args:
        connection: To the database that the tables are in.
        outputs: The outputs that are published there.
        state: Names the state table of a window table.

    Raises:
        ConfigurationError: ``TABLE_DIFFERS``, showing both lists of columns,
            ``TABLE_TYPES_DIFFER``: a column would change what is written,
            ``TABLE_UNFIT``: Postgres refuses the table or its names, or what
            ``check_copyable`` or ``check_branchable`` raises.
    """
    outputs = tuple(outputs)
    for output in outputs:
        with _unfit(output.table):
            check_insertable(
                connection, output.table, is_updated=output.kind.is_updated
            )
            output.create(connection, state)
    written = [output for output in outputs if output.tables]
    check_branchable(
        connection,
        [output.table for output in written],
        {o.table: o.tables[o.table] for o in written if _is_split(o)},
    )


def check_result_tables(connection: _Connection, outputs: Iterable[Output]) -> None:
    """Check the tables of some outputs as a start does, but create none.

    Raises:
        ConfigurationError: As ``create_result_tables``; ``TABLE_DIFFERS`` also for a
            missing table.
    """
    for output in outputs:
        check_insertable(connection, output.table, is_updated=output.kind.is_updated)
        for table, columns in output.tables.items():
            found = read_columns(connection, table_identifier(table))
            per_value = output.kind.has_event_rows
            _check(connection, table, columns, found, per_value=per_value)
        output.check(connection)


def _is_split(output: Output) -> bool:
    """Tell whether a database publishes an output by several transactions."""
    databases = {database_of(branch) for branch in output.branches}
    return len(databases) < len(output.branches)


@contextmanager
def _unfit(table: str) -> Iterator[None]:
    """Report an error of the block's statements as a fault of the table.

    Only the user's names and types differ in these statements from one table to the
    next, so an error must come from those.
    """
    try:
        yield
    except (psycopg.ProgrammingError, psycopg.NotSupportedError) as error:
        if isinstance(error, _OTHERWISE_TOLD):
            raise
        raise _table_unfit(table, error) from error
    except psycopg.OperationalError as error:
        # A limit, such as the number of columns, or a table that is not ready.
        if (error.sqlstate or "")[:2] not in {"54", "55"} or isinstance(
            error, psycopg.errors.LockNotAvailable
        ):
            raise
        raise _table_unfit(table, error) from error


def _table_unfit(table: str, error: psycopg.Error) -> ConfigurationError:
    return ConfigurationError(
        "TABLE_UNFIT",
        saw=f"Postgres answered {error.sqlstate} about table {qualified(table)}: "
        f"{error.diag.message_primary}.",
        why="The pipeline cannot create the table, or cannot write to it as it is.",
        fix="Change the table, or the names in the pipeline file, as the message says.",
    )


def create_or_check(
    connection: _Connection,
    table: str,
    columns: Sequence[Column],
    *,
    per_value: bool = False,
) -> bool:
    """Make a table of an output exist, or check its columns; the caller commits.

    Args:
        connection: To the table's database.
        table: The table's name.
        columns: The columns that are written.
        per_value: Whether a value that a column would change can be refused.

    Returns:
        Whether this call has created the table.

    Raises:
        ConfigurationError: ``TABLE_DIFFERS`` or ``TABLE_TYPES_DIFFER``.
    """
    found = read_columns(connection, table_identifier(table))
    if not found:
        definitions = sql.SQL(", ").join(column.definition for column in columns)
        connection.execute(
            sql.SQL("CREATE TABLE {} ({})").format(table_identifier(table), definitions)
        )
        return True
    _check(connection, table, columns, found, per_value=per_value)
    return False


def _check(
    connection: _Connection,
    table: str,
    columns: Sequence[Column],
    found: list[tuple[str, str, bool]],
    *,
    per_value: bool,
) -> None:
    existing = {name for name, *_ in found}
    wanted = {column.name for column in columns}
    demanding = [
        name for name, _, optional in found if not optional and name not in wanted
    ]
    unassignable = None
    if wanted <= existing and not demanding:
        unassignable = _find_unassignable(connection, table, columns)
        if unassignable is None:
            _check_exact(connection, table, columns, per_value=per_value)
            return
    raise ConfigurationError(
        "TABLE_DIFFERS",
        saw=f"Table {table} {_described(found)}; the pipeline writes ("
        + ", ".join(f"{column.name} {column.postgres_type}" for column in columns)
        + ").",
        why=_difference(sorted(wanted - existing), demanding, unassignable),
        fix="Change the table or the pipeline, or name another table.",
    )


def _described(found: list[tuple[str, str, bool]]) -> str:
    if not found:
        return "does not exist"
    return f"exists with ({', '.join(f'{name} {kind}' for name, kind, _ in found)})"


def _check_exact(
    connection: _Connection, table: str, columns: Sequence[Column], *, per_value: bool
) -> None:
    unfit = unfit_types(connection, table, columns, per_value=per_value)
    if unfit:
        raise ConfigurationError(
            "TABLE_TYPES_DIFFER",
            saw=f"In table {table}, {'; '.join(unfit)}.",
            why=(
                "The column would round, truncate or pad values, and the pipeline "
                "cannot refuse single values."
            )
            if not per_value
            else "The column would change nearly every value.",
            fix="Give the columns the types that the pipeline writes: "
            + " ".join(
                f"ALTER TABLE {table} ALTER COLUMN {column.name} TYPE "
                f"{column.postgres_type};"
                for column in columns
                if any(one.startswith(f"{column.name} is ") for one in unfit)
            ),
        )


def _difference(
    missing: list[str], demanding: list[str], unassignable: str | None
) -> str:
    if missing:
        return f"The table has no column {', '.join(missing)}."
    if demanding:
        return (
            f"The table requires values for {', '.join(demanding)}, which the "
            "pipeline does not write."
        )
    return f"The types do not fit: {unassignable}."


def _find_unassignable(
    connection: _Connection, table: str, columns: Sequence[Column]
) -> str | None:
    """Let Postgres itself say whether the columns can be assigned."""
    nulls = [
        sql.SQL("CAST(NULL AS {})").format(type_name(column.postgres_type))
        for column in columns
    ]
    typed_nulls = sql.SQL(", ").join(
        source for source, _ in guarded(connection, table, columns, nulls)
    )
    statement = sql.SQL("INSERT INTO {} ({}) SELECT {} WHERE false").format(
        table_identifier(table), names(columns), typed_nulls
    )
    try:
        with connection.transaction():
            connection.execute(statement)
    except (
        psycopg.errors.CannotCoerce,
        psycopg.errors.DatatypeMismatch,
        psycopg.errors.GeneratedAlways,
    ) as error:
        return error.diag.message_primary or str(error)
    except psycopg.Error as error:
        if not is_row_rejection(error):
            raise
        raise raises_always(table, error, connection) from error
    return None


def read_columns(
    connection: _Connection, table: sql.Identifier
) -> list[tuple[str, str, bool]]:
    """List (name, type, may stay empty) of a table; empty if it does not exist."""
    quoted = table.as_string(connection)
    rows = connection.execute(_SQL["read_columns"], {"table": quoted}).fetchall()
    return [(name, kind, optional) for name, kind, optional in rows]
