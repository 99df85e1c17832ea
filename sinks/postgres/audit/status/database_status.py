"""Shows what is under way in the databases that publish branches of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import (
    AuditedDatabase,
    connect_databases,
    databases_of,
)
from tallyweir.sinks.postgres.audit.checks.branches import (
    read_prepared,
    read_unresolved,
    read_used_databases,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import AuditedPipeline
from tallyweir.sinks.postgres.server.branch_names import HOME
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseStatus:
    """Branches under way in a database that publishes branches.

    Attributes:
        in_doubt: Decided branches that no resolver has seen committed.
        oldest_in_doubt_s: Seconds since the first of them was decided.
        prepared: Branches that are prepared there now, decided or not; None if the
            database does not respond.
        oldest_prepared_s: Seconds since the first of them was prepared.
        trouble: Why the database does not respond; empty if it does.
    """

    database: str
    in_doubt: int
    oldest_in_doubt_s: float | None
    prepared: int | None
    oldest_prepared_s: float | None
    trouble: str


def reach_databases(
    opened: ExitStack,
    home: Connection[TupleRow],
    pipeline: AuditedPipeline,
    databases: Mapping[str, str],
) -> dict[str, AuditedDatabase | str]:
    """Connect to every database; for one out of reach, return the error instead."""
    reached: dict[str, AuditedDatabase | str] = {
        HOME: AuditedDatabase(name=HOME, connection=home)
    }
    names = databases_of(pipeline) | read_used_databases(home, pipeline.name)
    for name in sorted(names - {HOME}):
        try:
            found = connect_databases(opened, home, [name], databases)
        except (ConfigurationError, RetryableError) as error:
            reached[name] = f"{error.code}: {error.saw}"
        else:
            reached[name] = found.by_name[name]
    return reached


def read_database_status(
    home: Connection[TupleRow],
    pipeline: AuditedPipeline,
    parts: Mapping[str, AuditedDatabase | str],
    now: datetime,
) -> tuple[DatabaseStatus, ...]:
    """Report what is under way in each database with branches.

    Args:
        home: A connection inside the caller's snapshot.
        pipeline: The pipeline to report on.
        parts: The result of ``reach_databases``.
        now: The time of the snapshot, by the home's clock.
    """
    unresolved = read_unresolved(home, pipeline.name)
    branching = databases_of(pipeline) | read_used_databases(home, pipeline.name)
    found = []
    for name in sorted(branching):
        part = parts[name]
        ages = [
            (now - b.decided_at).total_seconds()
            for b in unresolved
            if b.database == name
        ]
        prepared = None if isinstance(part, str) else read_prepared(part, pipeline)
        found.append(
            DatabaseStatus(
                database=name,
                in_doubt=len(ages),
                oldest_in_doubt_s=max(ages, default=None),
                prepared=None if prepared is None else len(prepared),
                oldest_prepared_s=max((prepared or {}).values(), default=None),
                trouble=part if isinstance(part, str) else "",
            )
        )
    return tuple(found)
