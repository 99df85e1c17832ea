"""``indoubt``: shows prepared branches that are not finished, and finishes them.

Crash:
    ``commit`` and ``rollback`` send one statement about one branch. It is done or not,
    and the next call finds out which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.arguments import AsJson
from tallyweir.services.cli.rendering import example, note, say, say_json
from tallyweir.sinks.protocol.errors import ConfigurationError, TallyweirError
from tallyweir.sinks.protocol.in_doubt import (
    EpochClaim,
    GlobalId,
    InDoubtFacts,
    InDoubtVerdict,
)

if TYPE_CHECKING:
    from tallyweir.sinks.postgres.audit.status.branches_in_doubt import (
        Evidence,
        HomeClaims,
        PreparedBranch,
    )

_UNREACHABLE_EXIT_CODE = 75

_ACTIONS = {
    InDoubtVerdict.COMMIT: "commits it",
    InDoubtVerdict.ROLL_BACK: "rolls it back",
    InDoubtVerdict.LEAVE: "leaves it alone",
}

_Gid = Annotated[str, typer.Argument(help="Global id, as `indoubt list` shows it.")]


GROUP = typer.Typer(
    name="indoubt",
    help="Show and finish prepared branches that are still in doubt.",
    no_args_is_help=True,
    epilog=example("tallyweir indoubt list", "tallyweir indoubt commit GID"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The branches in doubt in all databases that could be read."""

    installation: str
    databases: Sequence[str]
    evidence: Sequence[Evidence]
    failures: Mapping[str, TallyweirError]


@GROUP.command(
    "list",
    epilog=example("tallyweir indoubt list", "tallyweir indoubt list --json"),
)
def show(as_json: AsJson = False) -> None:
    """Show each prepared branch of this home's pipelines with its evidence.

    Looks into the home and each database of TALLYWEIR_DATABASES, changes nothing and
    waits for nothing. A driver at work has branches in doubt for moments.
    """
    from tallyweir.services.process.endpoints import find_databases

    found = find_in_doubt(find_databases())
    if as_json:
        say_json(_as_json(found))
    else:
        _say(found)
    if found.failures:
        raise typer.Exit(_UNREACHABLE_EXIT_CODE)


@GROUP.command(epilog=example("tallyweir indoubt commit GID"))
def commit(gid: _Gid) -> None:
    """Commit a prepared branch whose batch is decided; refuses any other."""
    _finish(gid, InDoubtVerdict.COMMIT)
    say(f"Committed {gid}.")


@GROUP.command("rollback", epilog=example("tallyweir indoubt rollback GID"))
def roll_back(gid: _Gid) -> None:
    """Roll back a prepared branch that nobody will decide; refuses any other."""
    _finish(gid, InDoubtVerdict.ROLL_BACK)
    say(f"Rolled back {gid}.")


def find_in_doubt(databases: Mapping[str, str]) -> Findings:
    """List branches in every database; one that fails does not hide the others.

    Raises:
        TallyweirError: The home database does not answer.
    """
    from tallyweir.sinks.postgres.audit.status.branches_in_doubt import (
        list_prepared,
        read_claims,
        read_evidence,
    )
    from tallyweir.sinks.postgres.server.connection import connect
    from tallyweir.sinks.postgres.server.naming import HOME

    prepared: list[PreparedBranch] = []
    failures: dict[str, TallyweirError] = {}
    with connect(databases[HOME], application_name="tallyweir indoubt") as home:
        claims = read_claims(home)
        for name, dsn in databases.items():
            try:
                with connect(dsn, application_name="tallyweir indoubt") as there:
                    found = list_prepared(there, name, claims.prefix)
                # Two names may refer to one database; show each branch once.
                prepared += [
                    one
                    for one in found
                    if one.gid.database == name or one.gid.database not in databases
                ]
            except TallyweirError as error:
                failures[name] = error
        evidence = read_evidence(home, prepared)
    return Findings(
        installation=claims.installation,
        databases=list(databases),
        evidence=evidence,
        failures=failures,
    )


def check_may_finish(
    gid: GlobalId, wanted: InDoubtVerdict, facts: InDoubtFacts, *, pipeline: str
) -> None:
    """Check that committing or rolling back a branch contradicts no decision.

    Args:
        gid: A prepared branch of the pipeline.
        wanted: ``COMMIT`` or ``ROLL_BACK``.
        facts: Facts read under the lock of the pipeline's row, after the branch was
            listed.
        pipeline: The pipeline's name.

    Raises:
        ConfigurationError: ``INDOUBT_DECIDED``, ``INDOUBT_UNDECIDED`` or
            ``INDOUBT_DRIVER_MAY_DECIDE``.
    """
    from tallyweir.sinks.protocol.in_doubt import decide_in_doubt

    verdict = decide_in_doubt(gid, facts, at_rest=None)
    if verdict is wanted:
        return
    match verdict:
        case InDoubtVerdict.COMMIT:
            raise ConfigurationError(
                "INDOUBT_DECIDED",
                saw=f"Batch {gid.sequence} of pipeline {pipeline} is decided, and "
                f"{gid} belongs to it.",
                why="After a rollback its rows would be missing from a batch that is "
                "committed everywhere else.",
                fix=f"tallyweir indoubt commit {gid}",
            )
        case InDoubtVerdict.ROLL_BACK:
            raise ConfigurationError(
                "INDOUBT_UNDECIDED",
                saw=f"No batch of pipeline {pipeline} was decided with {gid}; "
                f"{_named(facts.newest)} has superseded its driver.",
                why="The pipeline reads its events from Kafka again; after a commit "
                "its rows would be there twice.",
                fix=f"tallyweir indoubt rollback {gid}",
            )
        case InDoubtVerdict.LEAVE:
            raise ConfigurationError(
                "INDOUBT_DRIVER_MAY_DECIDE",
                saw=f"{gid} is of {_named(facts.newest)}, the newest claim of pipeline "
                f"{pipeline}, and not decided.",
                why="That driver may still decide it either way, and no other process "
                "can know whether the driver is alive.",
                fix=f"Leave it alone while the driver works. If it is dead, start "
                f"pipeline {pipeline}: a new claim rolls the branch back.",
            )


def _finish(text: str, wanted: InDoubtVerdict) -> None:
    from tallyweir.services.process.endpoints import find_databases
    from tallyweir.sinks.postgres.audit.status.branches_in_doubt import (
        list_prepared,
        read_claims,
    )
    from tallyweir.sinks.postgres.branches.prepared_branches import (
        PostgresPreparedBranches,
    )
    from tallyweir.sinks.postgres.ledger.stored_state import PostgresDecisionLedger
    from tallyweir.sinks.postgres.server.connection import DatabaseLink, connect
    from tallyweir.sinks.postgres.server.naming import HOME

    databases = find_databases()
    name = "tallyweir indoubt"
    with connect(databases[HOME], application_name=name) as home:
        claims = read_claims(home)
    gid, pipeline = _own(text, claims)
    if gid.database not in databases:
        raise _database_unknown(gid, databases)
    with connect(databases[gid.database], application_name=name) as there:
        prepared = list_prepared(there, gid.database, claims.prefix)
    branches = PostgresPreparedBranches(
        databases[gid.database],
        gid.database,
        installation=claims.installation,
        pipeline_number=gid.claim.pipeline_number,
    )
    link = DatabaseLink(databases[HOME], application_name=name)
    with closing(branches), closing(link):
        if gid not in {branch.gid for branch in prepared}:
            raise _not_prepared(gid, is_marked=branches.has_marker(gid))
        ledger = PostgresDecisionLedger(link, pipeline)
        facts = ledger.read_in_doubt([gid])
        check_may_finish(gid, wanted, facts, pipeline=pipeline)
        if wanted is InDoubtVerdict.COMMIT:
            done = branches.commit_prepared(gid)
            if done:
                ledger.note_committed([gid])
        else:
            done = branches.roll_back_prepared(gid)
        if not done:
            raise _not_prepared(gid, is_marked=branches.has_marker(gid))


def _own(text: str, claims: HomeClaims) -> tuple[GlobalId, str]:
    """Parse a global id and return its pipeline; refuse ids of other homes."""
    gid = GlobalId.parse(text)
    if gid is None or gid.claim.installation != claims.installation:
        raise ConfigurationError(
            "INDOUBT_FOREIGN",
            saw=f"{text} was not prepared for this home database; its global ids "
            f"begin with {claims.prefix}",
            why="Only the program that prepared it knows whether it is decided.",
            fix="Check the id, or ask its owner. `tallyweir indoubt list` shows the "
            "branches of this home database.",
        )
    pipeline = claims.pipeline_of(gid)
    if pipeline is None:
        raise ConfigurationError(
            "INDOUBT_FOREIGN",
            saw=f"{gid} belongs to pipeline number {gid.claim.pipeline_number}, which "
            "this home database does not know.",
            why="The home database was restored to a time before the pipeline was "
            "registered; the pipeline's decisions are lost.",
            fix="If the home database stays as it is, the batch never happened: run "
            f"ROLLBACK PREPARED '{gid}' with psql in {gid.database}.",
        )
    return gid, pipeline


def _database_unknown(gid: GlobalId, databases: Iterable[str]) -> ConfigurationError:
    return ConfigurationError(
        "DATABASE_UNKNOWN",
        saw=f"{gid} is in database {gid.database}; this process knows "
        f"{', '.join(databases)}.",
        why="No setting says where that database is.",
        fix=f"Name {gid.database} in TALLYWEIR_DATABASES.",
    )


def _not_prepared(gid: GlobalId, *, is_marked: bool) -> ConfigurationError:
    return ConfigurationError(
        "INDOUBT_NOT_PREPARED",
        saw=f"No branch {gid} is prepared in {gid.database}"
        + (", and its marker says that it is committed." if is_marked else "."),
        why="Another process has finished it."
        if is_marked
        else "It was rolled back, or never existed.",
        fix="Nothing to do; see `tallyweir indoubt list`.",
    )


def _named(claim: EpochClaim) -> str:
    return f"epoch {claim.epoch} ({claim.nonce})"


def _say(found: Findings) -> None:
    count = len(found.evidence)
    where = ", ".join(name for name in found.databases if name not in found.failures)
    if count:
        plural = "branch is" if count == 1 else "branches are"
        say(f"{count} prepared {plural} in doubt; checked {where}.")
    else:
        say(f"Nothing is in doubt; checked {where}.")
    for evidence in found.evidence:
        _say_evidence(evidence)
    for name, error in found.failures.items():
        note(f"{name} could not be checked: {error.code}")
        note(f"  saw: {error.saw}")


def _say_evidence(evidence: Evidence) -> None:
    branch, decision = evidence.branch, evidence.decision
    gid = branch.gid
    pipeline = evidence.pipeline or f"number {gid.claim.pipeline_number}, unknown"
    say(
        f"\n{gid}\n"
        f"  database  {branch.database}, branch {gid.branch}, owner {branch.owner}\n"
        f"  prepared  {branch.prepared_at:%Y-%m-%d %H:%M:%S%z}, "
        f"{branch.age_s:,.0f} s ago\n"
        f"  batch     {gid.sequence} of pipeline {pipeline}, "
        f"by {_named(gid.claim)}\n"
        f"  newest    {_named(evidence.newest) if evidence.newest else 'no claim'}\n"
        + (
            "  decided   no\n"
            if decision is None
            else f"  decided   yes, as batch {decision.sequence} at "
            f"{decision.published_at:%Y-%m-%d %H:%M:%S%z}\n"
        )
        + f"  resolver  {_ACTIONS[evidence.verdict]}: {evidence.why}"
    )


def _as_json(found: Findings) -> dict[str, object]:
    return {
        "installation": found.installation,
        "databases": {
            name: found.failures[name].code if name in found.failures else "ok"
            for name in found.databases
        },
        "branches": [
            {
                "gid": str(one.branch.gid),
                "database": one.branch.database,
                "branch": one.branch.gid.branch,
                "pipeline": one.pipeline,
                "sequence": one.branch.gid.sequence,
                "epoch": one.branch.gid.claim.epoch,
                "nonce": one.branch.gid.claim.nonce,
                "prepared_at": one.branch.prepared_at.isoformat(),
                "age_s": one.branch.age_s,
                "owner": one.branch.owner,
                "decided_at": one.decision and one.decision.published_at.isoformat(),
                "newest_epoch": one.newest and one.newest.epoch,
                "newest_nonce": one.newest and one.newest.nonce,
                "verdict": one.verdict.value,
                "why": one.why,
            }
            for one in found.evidence
        ],
    }
