"""Bounds and decisions of a pipeline's scaling, as its driver reads and writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.connection import DatabaseLink, connect
from tallyweir.sinks.postgres.server.naming import application_name
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.protocol.in_doubt import EpochClaim
from tallyweir.sinks.scaling.bounds import NOT_SCALED, Bounds, Range
from tallyweir.sinks.scaling.decision import ScalingDecision

_SQL = load_statements("tallyweir.sinks.postgres.ledger", "scaling.sql")
_APPLICATION = "tallyweir scaling"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastDecided:
    """The last decision of a pipeline's drivers; None for what was not scaled."""

    executors: int | None
    batch_offsets: int | None


class ScalingRecord:
    """One driver's view of ``scaling_bounds`` and ``scaling_decision``.

    It has a connection of its own. Only one thread may use it at a time.

    Args:
        dsn: The home database.
        pipeline: The pipeline's name.
    """

    def __init__(self, dsn: str, pipeline: str) -> None:
        self._link = DatabaseLink(dsn, application_name=_APPLICATION)
        self._pipeline = pipeline

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._link.close()

    def read_bounds(self) -> Bounds:
        """Return the operator's bounds; ``NOT_SCALED`` without any.

        Raises:
            RetryableError: The server is unreachable.
        """
        return self._link.run(
            "reading the bounds of scaling",
            lambda connection: read_bounds(connection, self._pipeline),
        )

    def read_last(self) -> LastDecided:
        """Return the last decision of any driver.

        Raises:
            RetryableError: The server is unreachable.
        """

        def read(connection: Connection[TupleRow]) -> LastDecided:
            row = connection.execute(
                _SQL["newest_decision"], {"pipeline": self._pipeline}
            ).fetchone()
            executors, batch_offsets = row or (None, None)
            return LastDecided(executors=executors, batch_offsets=batch_offsets)

        return self._link.run("reading the last decision on scaling", read)

    def record(self, claim: EpochClaim, decision: ScalingDecision) -> None:
        """Record a decision, with the figures that it was made from.

        Raises:
            RetryableError: The server is unreachable.

        Crash:
            Before the commit the decision is lost, and the next driver decides again.
            After it, that driver begins with this decision.
        """
        load, standing, former = decision.load, decision.standing, decision.former
        executors = decision.bounds.executors
        batch = decision.bounds.batch_offsets
        values = {
            "pipeline": self._pipeline,
            "epoch": claim.epoch,
            "executors": executors and standing.executors,
            "executors_before": former.executors,
            "batch_offsets": batch and standing.batch_offsets,
            "batch_offsets_before": former.batch_offsets,
            "because": decision.because.value,
            "reason": decision.reason,
            "executors_min": executors and executors.least,
            "executors_max": executors and executors.most,
            "batch_offsets_min": batch and batch.least,
            "batch_offsets_max": batch and batch.most,
            "executors_wanted": decision.wanted,
            "executors_there": decision.now.executors,
            "executor_cores": decision.now.cores,
            "tasks_max": decision.limits.tasks,
            "connections_max": decision.limits.connections,
            "backlog": load and load.backlog,
            "backlog_s": load and load.backlog_s,
            "arrival_rate": load and load.arrival_rate,
            "expected_rate": load and load.expected_rate,
            "rate": load and load.rate,
            "busy": load and load.busy,
            "hot_key_share": load and load.hot_key_share,
        }
        self._link.run(
            "recording a decision on scaling",
            lambda connection: connection.execute(_SQL["record_decision"], values),
        )


def read_bounds(connection: Connection[TupleRow], pipeline: str) -> Bounds:
    """Return a pipeline's bounds, in the caller's transaction."""
    row = connection.execute(_SQL["read_bounds"], {"pipeline": pipeline}).fetchone()
    if row is None:
        return NOT_SCALED
    executors_min, executors_max, batch_min, batch_max = row
    return Bounds(
        executors=_range(executors_min, executors_max),
        batch_offsets=_range(batch_min, batch_max),
    )


def read_free_connections(dsns: Mapping[str, str], claim: EpochClaim) -> int:
    """Return how many sessions a driver and its tasks may have in each database.

    Args:
        dsns: Every database of the pipeline.
        claim: The driver's claim; its own sessions count as free.

    Raises:
        RetryableError: A server is unreachable.
    """
    name = application_name(claim.pipeline_number, claim.epoch)
    free = []
    for dsn in dsns.values():
        with (
            translated("counting connections"),
            connect(dsn, application_name=_APPLICATION) as connection,
        ):
            (one,) = fetch_row(
                connection, _SQL["free_connections"], {"application_name": name}
            )
            free.append(int(one))
    return min(free)


def _range(least: int | None, most: int | None) -> Range | None:
    if least is None or most is None:
        return None
    return Range(least=least, most=most)
