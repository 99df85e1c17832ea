"""Checks that each group of a sharded window output is in one database only.

The keys of a group choose the database for all of its events. If a group were in two
databases, each would hold a part of its aggregates, and neither would be right.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter

from psycopg import sql

from tallyweir.sinks.postgres.audit.audited_databases import (
    AuditedDatabase,
    AuditedDatabases,
)
from tallyweir.sinks.postgres.audit.receipt import Check, judge, not_applicable
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
)
from tallyweir.sinks.postgres.server.statements import load_statements

_GROUPS = load_statements("tallyweir.sinks.postgres.audit.checks", "window_groups.sql")

#: How many groups a server sends at a time.
_GROUPS_FETCHED = 10_000


def check_window_groups(
    databases: AuditedDatabases, pipeline: AuditedPipeline
) -> Check:
    """Check all sharded window outputs, inside the caller's snapshots."""
    sharded = [output for output in pipeline.windows if len(output.databases) > 1]
    if not sharded:
        return not_applicable(
            "window_groups",
            unit="groups",
            why="no window output is in several databases",
        )
    checked = 0
    violations: list[str] = []
    for output in sharded:
        missing = [
            f"{output.table} in {one.name}: the table has no column {columns}"
            for one in databases.of(output)
            if (columns := one.missing(output, ("window_start", *output.by)))
        ]
        if missing:
            violations += missing
            continue
        for name, places in _groups(databases, output):
            checked += 1
            if len(places) > 1:
                violations.append(
                    f"{output.table}: the group {name} is in {' and in '.join(places)}"
                )
    return judge("window_groups", checked=checked, unit="groups", violations=violations)


def _groups(
    databases: AuditedDatabases, output: AuditedOutput
) -> Iterator[tuple[str, list[str]]]:
    """Yield each group with the databases that have it."""
    with ExitStack() as cursors:
        streams = [_stream(cursors, one, output) for one in databases.of(output)]
        for name, found in groupby(heapq.merge(*streams), key=itemgetter(0)):
            yield name, [database for _, database in found]


def _stream(
    cursors: ExitStack, database: AuditedDatabase, output: AuditedOutput
) -> Iterator[tuple[str, str]]:
    cursor = cursors.enter_context(database.connection.cursor("groups"))
    cursor.itersize = _GROUPS_FETCHED
    cursor.execute(
        _GROUPS["groups"].format(
            table=output.identifier,
            keys=sql.SQL(", ").join(sql.Identifier(name) for name in output.by),
        )
    )
    return ((name, database.name) for (name,) in cursor)
