"""Puts another version of a pipeline into force: an update or a rollback.

State, tables, the version's row and the pipeline's definition change in one act. The
driver at work is fenced, and a driver that starts with the former file is refused.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.faultpoints import VersionPoint, making
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch_pipeline,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.steering.act import (
    LOCK_TIMEOUT_MS,
    Act,
    ActRequest,
    acting,
)
from tallyweir.sinks.postgres.tables.foreign_code import hold_tables, keep_tables
from tallyweir.sinks.postgres.versions.comparison import compare
from tallyweir.sinks.postgres.versions.holdings import read_holdings
from tallyweir.sinks.postgres.versions.pipeline_versions import (
    Coming,
    PipelineVersion,
    add_version,
    read_in_force,
    read_versions,
)
from tallyweir.sinks.postgres.versions.version_plan import (
    DescribedVersion,
    VersionPlan,
)
from tallyweir.sinks.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The effects of an update or a rollback, done or planned.

    Attributes:
        version: The number of the version that is in force now.
        after_sequence: The last batch of the former version.
    """

    plan: VersionPlan
    version: int
    after_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    """A request of an operator to change the version.

    Attributes:
        reason: Why, for people who ask later.
        dry_run: Whether to roll everything back at the end.
        watched_batches: How many batches the driver watches before it trusts the
            version. If they are worse than those before, the driver rolls back.
        lock_timeout_ms: How long to wait for a publish or a snapshot under way.
    """

    pipeline: str
    reason: str
    dry_run: bool = False
    watched_batches: int = 0
    lock_timeout_ms: int = LOCK_TIMEOUT_MS

    def act(self, kind: str) -> ActRequest:
        """Return the request for the act that makes the change."""
        return ActRequest(
            pipeline=self.pipeline,
            kind=kind,
            reason=self.reason,
            dry_run=self.dry_run,
            lock_timeout_ms=self.lock_timeout_ms,
        )


def plan_update(
    connection: Connection[TupleRow], pipeline: str, wanted: DescribedVersion
) -> VersionPlan:
    """Say what an update would do, without doing it.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN`` or ``LAYOUT_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="planning an update"):
        in_force = _read_in_force(connection, pipeline)
        held = keep_tables(
            connection,
            read_pipeline(connection, pipeline),
            layouts=(in_force.described().layout, wanted.layout),
        )
        return _plan(connection, pipeline, in_force, wanted, held)


def update(
    connection: Connection[TupleRow], request: ChangeRequest, wanted: DescribedVersion
) -> Changed:
    """Put a new version of a pipeline into force.

    Args:
        connection: To the home, outside a transaction.
        request: What the operator asks for.
        wanted: The new version.

    Raises:
        ConfigurationError: ``VERSION_IN_FORCE``, ``PIPELINE_UNKNOWN``,
            ``REASON_MISSING``, ``LAYOUT_UNKNOWN``, or the code of a finding that makes
            the update impossible.
        RetryableError: ``SNAPSHOT_AT_WORK``; or a publish held the pipeline's row for
            too long.

    Crash:
        Before the COMMIT the former version is in force, with all that it holds; after
        it the new one is. A repeated call finds it in force.
    """
    with (
        making(VersionPoint.VERSION_IN_FORCE),
        _acting(connection, request, "update") as act,
    ):
        plan = _plan_held(connection, request.pipeline, wanted)
        return _put_into_force(connection, request, act, plan, wanted=wanted)


def rollback(
    connection: Connection[TupleRow], request: ChangeRequest, version: int
) -> Changed:
    """Put a former version into force again, as the newest version.

    Args:
        connection: To the home, outside a transaction.
        request: What the operator asks for.
        version: The number of the former version.

    Raises:
        ConfigurationError: ``VERSION_UNKNOWN``, or as ``update`` does.
        RetryableError: ``SNAPSHOT_AT_WORK``; or a publish held the pipeline's row for
            too long.

    Crash:
        As ``update``.
    """
    with (
        making(VersionPoint.VERSION_IN_FORCE),
        _acting(connection, request, "rollback") as act,
    ):
        wanted = read_version(connection, request.pipeline, version).described()
        plan = _plan_held(connection, request.pipeline, wanted)
        return _put_into_force(
            connection, request, act, plan, wanted=wanted, rolls_back_to=version
        )


def read_version(
    connection: Connection[TupleRow], pipeline: str, version: int
) -> PipelineVersion:
    """Return one version of a pipeline.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN`` or ``VERSION_UNKNOWN``.
    """
    fetch_pipeline(connection, pipeline)
    versions = read_versions(connection, pipeline)
    for one in versions:
        if one.version == version:
            return one
    raise ConfigurationError(
        "VERSION_UNKNOWN",
        saw=f"Pipeline {pipeline} has no version {version}; it has "
        f"{', '.join(str(one.version) for one in reversed(versions)) or 'none'}.",
        why="Only versions that ran or were announced are kept.",
        fix=f"tallyweir versions {pipeline} lists them.",
    )


def list_versions(
    connection: Connection[TupleRow], pipeline: str
) -> list[PipelineVersion]:
    """Return all versions of a pipeline, the newest first.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
    """
    fetch_pipeline(connection, pipeline)
    return read_versions(connection, pipeline)


def _acting(
    connection: Connection[TupleRow], request: ChangeRequest, kind: str
) -> AbstractContextManager[Act]:
    """Begin an act that changes no table while a snapshot is about to copy it."""
    return acting(connection, request.act(kind), snapshots_of=(request.pipeline,))


def _plan_held(
    connection: Connection[TupleRow], pipeline: str, wanted: DescribedVersion
) -> VersionPlan:
    """Plan a change, with the tables of both versions held until it is done."""
    in_force = _read_in_force(connection, pipeline)
    held = hold_tables(
        connection,
        read_pipeline(connection, pipeline),
        layouts=(in_force.described().layout, wanted.layout),
    )
    _check_other(in_force, wanted, pipeline)
    return _plan(connection, pipeline, in_force, wanted, held)


def _plan(
    connection: Connection[TupleRow],
    pipeline: str,
    in_force: PipelineVersion,
    wanted: DescribedVersion,
    held: frozenset[str],
) -> VersionPlan:
    former = in_force.described()
    holdings = read_holdings(
        connection, pipeline, former.layout, wanted.layout, held=held
    )
    return compare(former, wanted, holdings, in_force.knowledge)


def _read_in_force(connection: Connection[TupleRow], pipeline: str) -> PipelineVersion:
    fetch_pipeline(connection, pipeline)
    in_force = read_in_force(connection, pipeline)
    if in_force is None:
        raise ConfigurationError(
            "LAYOUT_UNKNOWN",
            saw=f"Pipeline {pipeline} is registered, but no driver of it has started "
            "yet.",
            why="A new version needs an earlier version to follow.",
            fix="Start it; its file becomes version 1.",
        )
    return in_force


def _check_other(
    in_force: PipelineVersion, wanted: DescribedVersion, pipeline: str
) -> None:
    if in_force.definition_hash != wanted.definition_hash:
        return
    raise ConfigurationError(
        "VERSION_IN_FORCE",
        saw=f"Version {in_force.version} of {pipeline}, which is in force, is already "
        "the same.",
        why="Nothing would change.",
        fix="Nothing to do; a running driver continues.",
    )


def _put_into_force(  # noqa: PLR0913 - all parts of one transaction
    connection: Connection[TupleRow],
    request: ChangeRequest,
    act: Act,
    plan: VersionPlan,
    *,
    wanted: DescribedVersion,
    rolls_back_to: int | None = None,
) -> Changed:
    plan.check_possible()
    with making(VersionPoint.STATE_MIGRATED):
        for statement in plan.reckoning.statements:
            connection.execute(statement)
    with making(VersionPoint.VERSION_ADDED):
        coming = Coming(
            epoch=act.epoch,
            from_sequence=act.last_sequence,
            reason=request.reason,
            is_announced=True,
            rolls_back_to=rolls_back_to,
            watched_batches=request.watched_batches,
        )
        version = add_version(connection, request.pipeline, wanted, plan.held, coming)
    act.detail.update(version=version, rolls_back_to=rolls_back_to, ddl=plan.ddl)
    return Changed(plan=plan, version=version, after_sequence=act.last_sequence)
