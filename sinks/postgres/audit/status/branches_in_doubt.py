"""Shows what is in doubt: branches under way in each database, with evidence.

Everything here only reads, and takes no lock: it shows what the resolver would do. The
resolver itself checks again under the lock of the pipeline's row, see
``tallyweir.sinks.protocol.resolution``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.errors import UndefinedTable
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
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
    ledger_missing,
    snapshot,
)
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.in_doubt import (
    EpochClaim,
    GlobalId,
    InDoubtFacts,
    InDoubtVerdict,
    decide_in_doubt,
)

_SQL = load_statements("tallyweir.sinks.postgres.audit.status", "branches_in_doubt.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedBranch:
    """A prepared branch as its database shows it."""

    gid: GlobalId
    #: The name by which pipelines know the database that holds the branch.
    database: str
    prepared_at: datetime
    #: Seconds since ``prepared_at``, by that database's clock.
    age_s: float
    #: The role that may finish it, apart from superusers.
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A branch with which a batch was committed."""

    gid: GlobalId
    sequence: int
    published_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UnnotedDecision(Decision):
    """A decided branch that is not noted as committed yet."""

    #: Seconds since the decision, by the home database's clock.
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A prepared branch, what home says of it, and what the resolver would do."""

    branch: PreparedBranch
    #: None if home knows no pipeline of this number.
    pipeline: str | None
    newest: EpochClaim | None
    decision: Decision | None
    verdict: InDoubtVerdict
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeClaims:
    """The pipelines of a home database and the newest claim of each."""

    installation: str
    newest: Mapping[str, EpochClaim]

    @property
    def prefix(self) -> str:
        """The prefix of the global ids of all its branches."""
        return f"tallyweir:{self.installation}:"

    def pipeline_of(self, gid: GlobalId) -> str | None:
        """Name the pipeline that a branch belongs to; None if it is not the home's."""
        for pipeline, newest in self.newest.items():
            if gid.claim.is_of_the_same_pipeline(newest):
                return pipeline
        return None


def read_claims(home: Connection[TupleRow]) -> HomeClaims:
    """Read the newest claim of each pipeline of a home database.

    Raises:
        ConfigurationError: ``LEDGER_MISSING``.
        RetryableError: The server went away.
    """
    try:
        with snapshot(home, doing="reading the claims"):
            return _read_claims(home)
    except Exception as error:
        if isinstance(error.__cause__, UndefinedTable):
            raise ledger_missing() from error
        raise


def list_prepared(
    connection: Connection[TupleRow], database: str, prefix: str
) -> tuple[PreparedBranch, ...]:
    """List the prepared branches in one database, the oldest first.

    Args:
        connection: To that database.
        database: The name by which pipelines know it.
        prefix: The prefix of their global ids. A name that does not continue like a
            global id is left out.

    Raises:
        RetryableError: The server went away.
    """
    with translated(f"listing prepared branches in {database}"):
        rows = fetch(connection, _SQL["prepared_branches"], prefix=prefix)
    return tuple(
        PreparedBranch(
            gid=gid,
            database=database,
            prepared_at=row["prepared_at"],
            age_s=row["age_s"],
            owner=row["owner"],
        )
        for row in rows
        if (gid := GlobalId.parse(row["gid"])) is not None
    )


def read_unnoted(home: Connection[TupleRow]) -> tuple[UnnotedDecision, ...]:
    """List the decided branches that are not noted as committed.

    Raises:
        RetryableError: The server went away.
    """
    with snapshot(home, doing="reading decided branches"):
        return tuple(
            UnnotedDecision(
                gid=gid,
                sequence=row["sequence"],
                published_at=row["published_at"],
                age_s=row["age_s"],
            )
            for row in fetch(home, _SQL["unnoted_decisions"])
            if (gid := GlobalId.parse(row["gid"])) is not None
        )


def read_evidence(
    home: Connection[TupleRow], branches: Collection[PreparedBranch]
) -> tuple[Evidence, ...]:
    """Report what the resolver would do with each prepared branch, and why.

    Args:
        home: The home database.
        branches: Prepared branches, listed before this call. If they were listed after
            it, a branch decided in between would look undecided.

    Raises:
        RetryableError: The server went away.
    """
    with snapshot(home, doing="reading what is decided"):
        claims = _read_claims(home)
        rows = fetch(
            home, _SQL["decisions_among"], gids=[str(one.gid) for one in branches]
        )
    decisions = {row["gid"]: (row["sequence"], row["published_at"]) for row in rows}
    decided = [
        Decision(
            gid=one.gid,
            sequence=decisions[str(one.gid)][0],
            published_at=decisions[str(one.gid)][1],
        )
        for one in branches
        if str(one.gid) in decisions
    ]
    return judge(branches, claims, decided)


def judge(
    branches: Iterable[PreparedBranch], claims: HomeClaims, decided: Iterable[Decision]
) -> tuple[Evidence, ...]:
    """Compare prepared branches with home's claims and decisions."""
    by_gid = {decision.gid: decision for decision in decided}
    return tuple(_judge(branch, claims, by_gid) for branch in branches)


def _judge(
    branch: PreparedBranch, claims: HomeClaims, decided: Mapping[GlobalId, Decision]
) -> Evidence:
    gid = branch.gid
    pipeline = claims.pipeline_of(gid)
    newest = None if pipeline is None else claims.newest[pipeline]
    decision = decided.get(gid)
    verdict = InDoubtVerdict.LEAVE
    if newest is not None:
        facts = InDoubtFacts(
            newest=newest, decided=frozenset(decided), unresolved=frozenset()
        )
        verdict = decide_in_doubt(gid, facts, at_rest=None)
    return Evidence(
        branch=branch,
        pipeline=pipeline,
        newest=newest,
        decision=decision,
        verdict=verdict,
        why=_why(gid, newest, verdict),
    )


def _why(gid: GlobalId, newest: EpochClaim | None, verdict: InDoubtVerdict) -> str:
    if newest is None:
        return f"home has no pipeline with number {gid.claim.pipeline_number}"
    match verdict:
        case InDoubtVerdict.COMMIT:
            return f"batch {gid.sequence} is decided, with this branch in its list"
        case InDoubtVerdict.ROLL_BACK:
            return (
                f"epoch {newest.epoch} ({newest.nonce}) has superseded its driver, "
                "which never decided the branch"
            )
        case InDoubtVerdict.LEAVE:
            return "its driver has the newest claim and may yet decide it"


def _read_claims(home: Connection[TupleRow]) -> HomeClaims:
    installation = fetch_one(home, _SQL["installation"])["installation_id"]
    return HomeClaims(
        installation=installation,
        newest={
            row["pipeline"]: EpochClaim(
                installation=installation,
                pipeline_number=row["pipeline_number"],
                epoch=Epoch(row["epoch"]),
                nonce=row["nonce"],
            )
            for row in fetch(home, _SQL["registered_pipelines"])
        },
    )


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
