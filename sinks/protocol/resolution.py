"""Finishes branches in doubt, by the same steps in a driver and in the resolver.

A lost answer to the home's own COMMIT is not this: see ``coordinator``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.in_doubt import (
    EpochClaim,
    GlobalId,
    InDoubtVerdict,
    check_decided_is_committed,
    decide_in_doubt,
)
from tallyweir.sinks.protocol.ports import DecisionLedger, PreparedBranches


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What ``resolve`` has done."""

    #: The claim that was the newest at that time.
    newest: EpochClaim
    committed: tuple[GlobalId, ...]
    rolled_back: tuple[GlobalId, ...]
    #: Branches that the live driver may yet decide.
    left: tuple[GlobalId, ...]


def resolve(
    ledger: DecisionLedger,
    databases: Mapping[str, PreparedBranches],
    *,
    at_rest: EpochClaim | None,
) -> Resolution:
    """Commit every decided branch of a pipeline; roll back those of dead drivers.

    It may run at the same time as the driver, and in several processes: each step is
    decided by facts that no longer change.

    Args:
        ledger: The pipeline's home database.
        databases: The databases that hold its branches, by name.
        at_rest: See ``decide_in_doubt``.

    Raises:
        FatalError: ``BRANCH_LOST``.
        ConfigurationError: ``DATABASE_UNKNOWN``: a decided branch is in a database
            that was not given.
        RetryableError: A database did not answer.

    Crash:
        At any point: the next call does the rest.
    """
    # List branches before reading the facts; ``in_doubt`` says why.
    prepared = {
        gid: database
        for database in databases.values()
        for gid in database.list_prepared()
    }
    facts = ledger.read_in_doubt(prepared)
    verdicts = {
        gid: decide_in_doubt(gid, facts, at_rest=at_rest) for gid in sorted(prepared)
    }
    for gid, verdict in verdicts.items():
        if verdict is InDoubtVerdict.ROLL_BACK:
            prepared[gid].roll_back_prepared(gid)
    decided = sorted(facts.decided | facts.unresolved)
    for gid in decided:
        if gid.database not in databases:
            raise _database_unknown(gid)
        commit_decided(databases[gid.database], gid)
    if decided:
        ledger.note_committed(decided)
    return Resolution(
        newest=facts.newest,
        committed=tuple(decided),
        rolled_back=_those(verdicts, InDoubtVerdict.ROLL_BACK),
        left=_those(verdicts, InDoubtVerdict.LEAVE),
    )


def commit_decided(database: PreparedBranches, gid: GlobalId) -> None:
    """Commit a branch of a decided batch, unless another process has done so.

    Raises:
        FatalError: ``BRANCH_LOST``.
        RetryableError: The database did not answer; calling again is safe.
    """
    if not database.commit_prepared(gid):
        check_decided_is_committed(gid, marker_found=database.has_marker(gid))


def _those(
    verdicts: Mapping[GlobalId, InDoubtVerdict], wanted: InDoubtVerdict
) -> tuple[GlobalId, ...]:
    return tuple(gid for gid, verdict in verdicts.items() if verdict is wanted)


def _database_unknown(gid: GlobalId) -> ConfigurationError:
    return ConfigurationError(
        "DATABASE_UNKNOWN",
        saw=f"Batch {gid.sequence} has a decided branch in database {gid.database}, "
        "which is not among the pipeline's databases.",
        why="The resolver cannot commit the branch, and the driver can publish "
        "nothing after it.",
        fix=f"Name {gid.database} in TALLYWEIR_DATABASES or under databases: until "
        "the branch is committed.",
    )
