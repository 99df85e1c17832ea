"""Keeps a table owner's code from running with the rights of the table's users.

The owner of a table can attach code that runs when other roles use the table: a
trigger, a rule, a policy, a constraint, an index, a type, or a view in its place. The
code can undo any ``SET ROLE``, so it does not help to use the table under its owner's
role. This module locks a table against changes, then inspects it, and refuses it unless
all of its code is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    pin_path,
)
from tallyweir.sinks.postgres.ledger.output_kinds import WINDOW, kind_of
from tallyweir.sinks.postgres.server.columns import qualified, table_identifier
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.shadow_tables import read_shadow_tables
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.tables", "foreign_code.sql")
_SHOWN = 5


def hold_tables(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    *,
    layouts: Iterable[Mapping[str, Any]] = (),
    needs_all: bool = False,
) -> frozenset[str]:
    """Hold a pipeline's tables in the home as they are, for an act that writes them.

    Until the transaction ends, no other one can create, alter or drop any part of these
    tables.

    Args:
        connection: A connection to the home, inside of the act's transaction.
        pipeline: The pipeline whose outputs and shadows are held.
        layouts: Layouts of the versions whose tables the act reads as well.
        needs_all: Whether the act uses each append table.

    Returns:
        The tables that exist, quoted. An act uses no other table: another role could
        put a view in its place before it is used.

    Raises:
        ConfigurationError: ``FOREIGN_CODE``, or ``TABLE_LOST``.
        LockNotAvailable: Another transaction changes a table for longer than the lock
            timeout.
    """
    tables = _tables_of(connection, pipeline, HOME, layouts)
    held = _require_plain(connection, tables, is_written=True, is_home=True)
    if needs_all:
        for output in pipeline.appends:
            if HOME in output.databases and output.quoted(connection) not in held:
                raise not_there(output.table)
    return held


def hold_table(connection: Connection[TupleRow], database: str, table: str) -> None:
    """Hold one table of any database as it is, to try a row in it.

    Until the transaction ends, no other one can create, alter or drop any part of it.

    Raises:
        ConfigurationError: ``FOREIGN_CODE``.
    """
    (path,) = fetch(connection, _SQL["path"])
    pin_path(connection)
    quoted = table_identifier(table).as_string(connection)
    _require_plain(connection, [quoted], is_written=True, is_home=database == HOME)
    # The code that runs with the row is trusted, and may rely on the path.
    fetch(connection, _SQL["restore_path"], path=path["path"])


def not_there(table: str, *, what: str = "Table") -> ConfigurationError:
    """Explain that a table that an act needs, or a part of it, does not exist."""
    return ConfigurationError(
        "TABLE_LOST",
        saw=f"{what} {qualified(table)} does not exist.",
        why="The act must read and write this table.",
        fix="Start the driver: it creates a table that never held rows, and explains "
        "what to do about any other table.",
    )


def keep_tables(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    database: str = HOME,
    *,
    layouts: Iterable[Mapping[str, Any]] | None = None,
) -> frozenset[str]:
    """Keep a pipeline's tables in a database from being replaced while they are read.

    Args:
        connection: A connection in the transaction that reads them.
        pipeline: The pipeline whose outputs and shadows are kept.
        database: The pipeline's database that the connection is to.
        layouts: Layouts of the versions whose tables are read as well. If given, all
            tables that exist count, so one that may not be read is an error.

    Returns:
        The tables that exist and may be read, quoted.

    Raises:
        ConfigurationError: ``FOREIGN_CODE``.
        InsufficientPrivilege: See ``layouts``.
    """
    tables = _tables_of(connection, pipeline, database, layouts or ())
    pin_path(connection)
    return _require_plain(
        connection,
        tables,
        is_written=False,
        is_home=database == HOME,
        skips_secret=layouts is None,
    )


def _tables_of(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    database: str,
    layouts: Iterable[Mapping[str, Any]],
) -> list[str]:
    """Name the tables; for a window table, also its revisions and its state."""
    kinds = {
        output.table: output.kind
        for output in pipeline.outputs
        if database in output.databases
    }
    if database == HOME:
        # Tables that the ledger also gives to the pipeline, whatever its definition.
        # It keeps no kind of a shadow, so look for every table that one may have.
        for shadow in read_shadow_tables(connection, pipeline.name).values():
            kinds.setdefault(shadow, WINDOW)
        for output in (o for one in layouts for o in one["outputs"] if o["is_home"]):
            kinds[output["table"]] = kind_of(output)
    installation = None if database == HOME else pipeline.installation
    return [
        one.as_string(connection)
        for table, kind in kinds.items()
        for one in kind.tables(table, pipeline.number, installation=installation)
    ]


def _require_plain(
    connection: Connection[TupleRow],
    tables: list[str],
    *,
    is_written: bool,
    is_home: bool,
    skips_secret: bool = False,
) -> frozenset[str]:
    values = {"is_written": is_written}
    lock = _SQL["hold" if is_written else "keep"]
    held: set[str] = set()
    # A transaction that this one waited for may have created a table meanwhile.
    while new := [
        name
        for row in fetch(
            connection, _SQL["present"], tables=tables, skips_secret=skips_secret
        )
        if (name := str(row["name"])) not in held
    ]:
        for name in new:
            # A view cannot be held so; the check below refuses one without trust.
            (kind,) = fetch(connection, _SQL["kind"], table=name) or [{"relkind": "r"}]
            if kind["relkind"] in {"r", "p"}:
                connection.execute(lock.format(table=sql.SQL(name)))
        held.update(new)
    names = [name for name in tables if name in held]
    problems = fetch(
        connection,
        _SQL["foreign_code"],
        tables=names,
        schema="tallyweir" if is_home else "tallyweir_participant",
        **values,
    )
    if problems:
        shown = [f"{row['name']} {row['what']}" for row in problems[:_SHOWN]]
        rest = len(problems) - len(shown)
        more = f", and {rest} more" if rest else ""
        raise ConfigurationError(
            "FOREIGN_CODE",
            saw=f"{', '.join(shown)}{more}.",
            why="The table belongs to a role with fewer privileges, whose code would "
            "run with the privileges of the current role.",
            fix="Remove it; or, if you trust it, make the owner of the schema "
            "tallyweir the owner of the table, and grant the publisher the "
            "privileges that it needs.",
        )
    return frozenset(held)
