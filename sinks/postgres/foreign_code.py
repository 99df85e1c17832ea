"""Keeps code of others from running with the rights of whoever acts, or looks.

Whoever owns a table can have code run when others use it: by a trigger, a rule, a
policy, a constraint, an index, a type, or a view in its place. Such code can take back
any ``SET ROLE``, so it does not help to use the table under its owner's role. Nothing
of a table runs that this does not let pass: it is held still first, then looked at.
"""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from sinks.postgres.audit.audited_pipeline import AuditedPipeline, fetch, pin_path
from sinks.postgres.branch_names import HOME
from sinks.postgres.columns import table_identifier
from sinks.postgres.naming import revisions_table, state_table
from sinks.postgres.statements import load_statements
from sinks.protocol.errors import ConfigurationError

_SQL = load_statements("sinks.postgres", "foreign_code.sql")
_SHOWN = 5


def hold_tables(connection: Connection[TupleRow], pipeline: AuditedPipeline) -> None:
    """Hold a pipeline's tables in the home as they are, for an act that writes them.

    Until the transaction ends nobody makes, alters or drops anything of them.

    Raises:
        ConfigurationError: ``FOREIGN_CODE``.
        LockNotAvailable: Somebody changes a table for longer than the lock timeout.
    """
    tables = _tables_of(connection, pipeline, HOME)
    _require_plain(connection, tables, is_written=True, is_home=True)


def keep_tables(
    connection: Connection[TupleRow], pipeline: AuditedPipeline, database: str = HOME
) -> None:
    """Keep a pipeline's tables in a database from being exchanged while they are read.

    Raises:
        ConfigurationError: ``FOREIGN_CODE``.
    """
    tables = _tables_of(connection, pipeline, database)
    pin_path(connection)
    _require_plain(connection, tables, is_written=False, is_home=database == HOME)


def _tables_of(
    connection: Connection[TupleRow], pipeline: AuditedPipeline, database: str
) -> list[str]:
    installation = None if database == HOME else pipeline.installation
    found: list[sql.Identifier] = []
    for output in pipeline.outputs:
        if output.kind == "outbox" or database not in output.databases:
            continue
        found.append(output.identifier)
        if output.kind == "window":
            found.append(table_identifier(revisions_table(output.table)))
            state = state_table(
                pipeline.number, output.table, installation=installation
            )
            found.append(state)
    return [table.as_string(connection) for table in found]


def _require_plain(
    connection: Connection[TupleRow],
    tables: Iterable[str],
    *,
    is_written: bool,
    is_home: bool,
) -> None:
    values = {"is_written": is_written}
    found = fetch(connection, _SQL["present"], tables=list(tables), **values)
    names = [str(row["name"]) for row in found]
    lock = _SQL["hold" if is_written else "keep"]
    for name in names:
        # A view cannot be held so; it is refused, if it may not be there.
        (kind,) = fetch(connection, _SQL["kind"], table=name) or [{"relkind": "r"}]
        if kind["relkind"] in {"r", "p"}:
            connection.execute(lock.format(table=sql.SQL(name)))
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
            why="The table belongs to a role with fewer rights than this one, whose "
            "code would run with the rights of this one.",
            fix="Take it off; or, if it is known to be good, let the owner of the "
            "schema tallyweir own the table and grant the publisher what it needs.",
        )
