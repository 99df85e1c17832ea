"""Lists a pipeline's versions, each with the verdict of a rollback to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.ledger.audited_pipeline import snapshot
from tallyweir.sinks.postgres.versions.pipeline_versions import PipelineVersion
from tallyweir.sinks.protocol.errors import ConfigurationError

#: A plan reads windows and state, so only the newest versions get one.
_PLANNED_MAX = 10


def versions_json(versions: Sequence[PipelineVersion]) -> list[dict[str, Any]]:
    """Return plain values of each version, the newest first."""
    return [
        {
            "version": one.version,
            "is_in_force": one is versions[0],
            "definition_hash": one.definition_hash,
            "from_sequence": one.from_sequence,
            "epoch": one.epoch,
            "reason": one.reason,
            "rolls_back_to": one.rolls_back_to,
            "watched_batches": one.watched_batches,
            "made_by": one.made_by,
            "made_at": one.made_at.isoformat(),
        }
        for one in versions
    ]


def planned_versions(home: Connection[TupleRow], pipeline: str) -> list[dict[str, Any]]:
    """Return ``versions_json``, with the verdict of ``plan`` on each former version.

    ``verdict`` is None for the version in force, for a version with the same
    definition, and for all but the newest ten. If a plan fails, ``verdict`` is None
    too, and ``why`` has the error.

    Args:
        home: A connection to the home, not inside a transaction. It only reads.
        pipeline: Name of the pipeline.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(home, doing="listing versions"):
        versions = steering.list_versions(home, pipeline)
    return [
        {**shown, **_verdict(home, pipeline, one, versions)}
        for shown, one in zip(versions_json(versions), versions, strict=True)
    ]


def _verdict(
    home: Connection[TupleRow],
    pipeline: str,
    version: PipelineVersion,
    versions: Sequence[PipelineVersion],
) -> dict[str, str | None]:
    is_same = version.definition_hash == versions[0].definition_hash
    if is_same or version not in versions[:_PLANNED_MAX]:
        return {"verdict": None, "why": None}
    try:
        plan = steering.plan_update(home, pipeline, version.described())
    except ConfigurationError as error:
        return {"verdict": None, "why": f"{error.code}: {error.saw}"}
    worst = next(plan.of(plan.verdict), None)
    return {"verdict": plan.verdict.value, "why": worst.saw if worst else None}
