"""One round of the resolver: checks every database, and finishes branches.

It finishes each branch separately: a database that does not answer, or a branch that
another role owns, must not delay the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import structlog

from tallyweir.sinks.postgres.audit.status.branches_in_doubt import (
    Evidence,
    HomeClaims,
    PreparedBranch,
    UnnotedDecision,
    list_prepared,
    read_claims,
    read_evidence,
    read_unnoted,
)
from tallyweir.sinks.postgres.branches.prepared_branches import PostgresPreparedBranches
from tallyweir.sinks.postgres.ledger.stored_state import PostgresDecisionLedger
from tallyweir.sinks.postgres.server.connection import DatabaseLink, connect
from tallyweir.sinks.postgres.server.databases import DATABASES_VARIABLE
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.protocol.in_doubt import GlobalId, InDoubtFacts, InDoubtVerdict
from tallyweir.sinks.protocol.ports import DecisionLedger, PreparedBranches
from tallyweir.sinks.protocol.resolution import Resolution, resolve

#: A driver finishes its own branches within moments. A resolver that acts earlier makes
#: the driver wait, or start over because another session is finishing its branch.
GRACE_S = 10.0
#: Ages for warnings: a branch in doubt holds locks and blocks VACUUM.
WARN_AFTER_S = 60.0
ALARM_AFTER_S = 300.0

_NAME = "tallyweir resolver"


@dataclass(kw_only=True)
class RoundReport:
    """The results of a round, and its errors."""

    committed: list[GlobalId] = field(default_factory=list)
    rolled_back: list[GlobalId] = field(default_factory=list)
    #: Branches that stay prepared.
    left: list[GlobalId] = field(default_factory=list)
    #: Age in seconds of each prepared branch, by database that could be read.
    found: dict[str, list[float]] = field(default_factory=dict)
    #: Codes of errors; each has been logged.
    failures: list[str] = field(default_factory=list)


class ResolverRound:
    """Finishes the branches of every pipeline that one home database knows.

    It may run at the same time as drivers, other resolvers and other rounds, because
    the facts that it decides by never change. It never touches a branch that the newest
    claim has yet to decide, nor a global id that does not belong to a pipeline of this
    home.

    Args:
        databases: Connection strings of the home and of the others, by name.
        grace_s: The round leaves branches younger than this to their driver.
        is_stopped: Called before each branch; True ends the round.

    Crash:
        It may stop between any two steps. The next round does the rest.
    """

    def __init__(
        self,
        databases: Mapping[str, str],
        *,
        grace_s: float = GRACE_S,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._databases = databases
        self._grace_s = grace_s
        self._is_stopped = is_stopped
        self._log = structlog.get_logger()
        self._report = RoundReport()

    def run(self) -> RoundReport:
        """Do one round; a failure is logged and does not stop the rest."""
        try:
            with connect(self._databases[HOME], application_name=_NAME) as home:
                claims = read_claims(home)
                unnoted = read_unnoted(home)
        except TallyweirError as error:
            self._tell_failure(HOME, error)
            return self._report
        for database in self._databases:
            if self._is_stopped():
                break
            try:
                self._look_into(database, claims, unnoted)
            except TallyweirError as error:
                self._tell_failure(database, error)
        self._tell_unknown_databases(unnoted)
        return self._report

    def _look_into(
        self, database: str, claims: HomeClaims, unnoted: Sequence[UnnotedDecision]
    ) -> None:
        prepared = self._list(database, claims.prefix)
        self._report.found[database] = [branch.age_s for branch in prepared]
        for branch in prepared:
            if branch.age_s >= self._grace_s:
                self._finish(branch.gid, database, claims, branch)
        listed = {branch.gid for branch in prepared}
        for decision in unnoted:
            gid = decision.gid
            if (
                gid.database == database
                and gid not in listed
                and decision.age_s >= self._grace_s
            ):
                self._finish(gid, database, claims, None)
        if any(branch.age_s >= self._grace_s for branch in prepared):
            self._tell_left(self._list(database, claims.prefix))

    def _list(self, database: str, prefix: str) -> tuple[PreparedBranch, ...]:
        dsn = self._databases[database]
        with connect(dsn, application_name=_NAME) as connection:
            found = list_prepared(connection, database, prefix)
        # Two names may refer to one database; finish each branch under its own name.
        return tuple(one for one in found if one.gid.database == database)

    def _finish(
        self,
        gid: GlobalId,
        database: str,
        claims: HomeClaims,
        prepared: PreparedBranch | None,
    ) -> None:
        pipeline = claims.pipeline_of(gid)
        if pipeline is None or self._is_stopped():
            return
        try:
            resolution = finish_branch(
                gid, self._databases, pipeline, database=database, listed=bool(prepared)
            )
        except TallyweirError as error:
            self._tell_failure(database, error, gid=gid)
            return
        self._tell_done(pipeline, resolution, prepared)

    def _tell_done(
        self, pipeline: str, resolution: Resolution, prepared: PreparedBranch | None
    ) -> None:
        newest = resolution.newest
        evidence = {
            "pipeline": pipeline,
            "newest_epoch": newest.epoch,
            "newest_nonce": newest.nonce,
            "prepared_s": None if prepared is None else round(prepared.age_s, 1),
            "owner": None if prepared is None else prepared.owner,
        }
        for gid in resolution.committed:
            self._report.committed.append(gid)
            self._log.info(
                "branch committed",
                gid=str(gid),
                decided_as=gid.sequence,
                why="home decided the batch with this branch",
                **evidence,
            )
        for gid in resolution.rolled_back:
            self._report.rolled_back.append(gid)
            self._log.info(
                "branch rolled back",
                gid=str(gid),
                decided_as=None,
                why="a newer claim has superseded its driver, which decided nothing",
                **evidence,
            )

    def _tell_left(self, prepared: Sequence[PreparedBranch]) -> None:
        """Warn of branches that stay; a healthy driver has finished its own by now."""
        if not prepared:
            return
        with connect(self._databases[HOME], application_name=_NAME) as home:
            evidence = read_evidence(home, prepared)
        for one in evidence:
            self._report.left.append(one.branch.gid)
            if one.branch.age_s >= WARN_AFTER_S:
                tell = (
                    self._log.error
                    if one.branch.age_s >= ALARM_AFTER_S
                    else self._log.warning
                )
                tell("branch in doubt", **_describe(one))

    def _tell_unknown_databases(self, unnoted: Iterable[UnnotedDecision]) -> None:
        """Warn of databases that hold decided branches but are not configured."""
        unknown: dict[str, list[UnnotedDecision]] = {}
        for decision in unnoted:
            if decision.gid.database not in self._databases:
                unknown.setdefault(decision.gid.database, []).append(decision)
        for database, decisions in sorted(unknown.items()):
            self._log.warning(
                "database unknown",
                database=database,
                decided_branches=len(decisions),
                oldest_s=round(max(one.age_s for one in decisions), 1),
                fix=f"Name {database} in {DATABASES_VARIABLE}; until then only the "
                "pipeline's driver can finish its branches.",
            )

    def _tell_failure(
        self, database: str, error: TallyweirError, *, gid: GlobalId | None = None
    ) -> None:
        self._report.failures.append(error.code)
        self._log.error(
            "branch not finished" if gid else "database not looked into",
            database=database,
            gid=None if gid is None else str(gid),
            error_code=error.code,
            saw=error.saw,
            why=error.why,
            fix=error.fix,
        )


def finish_branch(
    gid: GlobalId,
    databases: Mapping[str, str],
    pipeline: str,
    *,
    database: str,
    listed: bool,
) -> Resolution:
    """Resolve one branch.

    Args:
        gid: A branch of the pipeline.
        databases: Connection strings by name; the home's and the branch's are used.
        pipeline: Name of its pipeline in the home database.
        database: Name of the database where the branch is, prepared or committed.
        listed: Whether it was found prepared, before this call.

    Raises:
        TallyweirError: As ``resolve``.

    Crash:
        As ``resolve``.
    """
    branches = PostgresPreparedBranches(
        databases[database],
        database,
        installation=gid.claim.installation,
        pipeline_number=gid.claim.pipeline_number,
    )
    link = DatabaseLink(databases[HOME], application_name=_NAME)
    with closing(branches), closing(link):
        return resolve(
            OneDecision(PostgresDecisionLedger(link, pipeline), gid),
            {database: OneBranch(branches, [gid] if listed else [])},
            at_rest=None,
        )


def _describe(evidence: Evidence) -> dict[str, object]:
    branch, newest = evidence.branch, evidence.newest
    return {
        "gid": str(branch.gid),
        "database": branch.database,
        "pipeline": evidence.pipeline,
        "prepared_s": round(branch.age_s, 1),
        "owner": branch.owner,
        "decided_as": evidence.decision and evidence.decision.sequence,
        "newest_epoch": newest and newest.epoch,
        "newest_nonce": newest and newest.nonce,
        "verdict": evidence.verdict.value,
        "why": evidence.why,
        "fix": _fix(evidence),
    }


def _fix(evidence: Evidence) -> str:
    if evidence.verdict is not InDoubtVerdict.LEAVE:
        return (
            "See the error above, which keeps the resolver from finishing the branch."
        )
    if evidence.pipeline is None:
        return "See tallyweir indoubt list."
    return (
        f"Start pipeline {evidence.pipeline}, if its driver is dead: a new claim "
        "rolls the branch back."
    )


class OneDecision:
    """The ``DecisionLedger`` of a pipeline as if it had decided one branch at most.

    It leaves out only other branches, so every verdict on this one is the same.
    """

    def __init__(self, ledger: DecisionLedger, gid: GlobalId) -> None:
        self._ledger = ledger
        self._gid = gid

    def read_in_doubt(self, gids: Collection[GlobalId]) -> InDoubtFacts:
        facts = self._ledger.read_in_doubt(gids)
        return replace(facts, unresolved=facts.unresolved & {self._gid})

    def note_committed(self, branches: Collection[GlobalId]) -> None:
        self._ledger.note_committed(branches)


class OneBranch:
    """The ``PreparedBranches`` of a database, limited to one listed branch.

    Args:
        branches: All prepared branches of that database.
        listed: The branch, if it was found prepared before; may be empty.
    """

    def __init__(self, branches: PreparedBranches, listed: Sequence[GlobalId]) -> None:
        self._branches = branches
        self._listed = listed

    @property
    def database(self) -> str:
        return self._branches.database

    def list_prepared(self) -> Sequence[GlobalId]:
        return self._listed

    def commit_prepared(self, gid: GlobalId) -> bool:
        return self._branches.commit_prepared(gid)

    def roll_back_prepared(self, gid: GlobalId) -> bool:
        return self._branches.roll_back_prepared(gid)

    def has_marker(self, gid: GlobalId) -> bool:
        return self._branches.has_marker(gid)
