"""Reads what the measured batches of a pipeline have used over a span of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    fetch_one,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.guarantee import Guarantee

_SQL = load_statements("tallyweir.sinks.postgres.audit.status", "cost.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUsage:
    """One step over all batches; docs/status.md has the formula of each field."""

    cpu_seconds: float
    rows_in: int
    rows_out: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputUsage:
    """One output.

    Attributes:
        rows: Rows that its batches have published.
        bytes: The size of its table in the home now, with indexes; None if the home
            has no such table.
    """

    rows: int
    bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Resources that the measured batches of a span have used.

    Attributes:
        deduplicates: Whether the pipeline deduplicates events by their IDs.
        began_at: When the first of its batches was planned.
        ended_at: The time of the reading.
        wal_bytes: An upper bound, as measured.
        cpu_seconds: CPU seconds, by what spent them.
        publish_seconds: Seconds by the clock, by part of publishing.
        batch_cpu_s: CPU seconds of a batch without records: the intercept of a line
            fitted through all batches. None if there are too few batches.
        batch_cpu_r2: How well that line fits; 1 is a perfect fit. None likewise.
    """

    pipeline: str
    guarantee: Guarantee
    deduplicates: bool
    began_at: datetime
    ended_at: datetime
    batches: int
    read: int
    committed: int
    wal_bytes: int
    cpu_seconds: Mapping[str, float]
    publish_seconds: Mapping[str, float]
    steps: Mapping[str, StepUsage]
    outputs: Mapping[str, OutputUsage]
    batch_cpu_s: float | None
    batch_cpu_r2: float | None

    @property
    def hours(self) -> float:
        return (self.ended_at - self.began_at).total_seconds() / 3_600

    @property
    def cpu_s(self) -> float:
        return sum(self.cpu_seconds.values())


def read_usage(
    connection: Connection[TupleRow], pipeline: str, *, span: timedelta
) -> Usage:
    """Add up what the batches published in the newest span of time have used.

    Args:
        connection: To the home, outside a transaction.
        pipeline: The pipeline's name.
        span: How far back from now.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    values = {"pipeline": pipeline, "span": span}
    with snapshot(connection, doing="reading the resources that batches used"):
        known = read_pipeline(connection, pipeline)
        totals = fetch_one(connection, _SQL["totals"], **values)

        def numbers(name: str) -> dict[str, float]:
            rows = fetch(connection, _SQL["numbers"], object=name, **values)
            return {row["name"]: row["value"] for row in rows}

        def size(table: str) -> int | None:
            *given, name = table.split(".", 1)
            (schema,) = given or ["public"]
            found = fetch_one(connection, _SQL["size"], schema=schema, table=name)
            return None if found["bytes"] is None else int(found["bytes"])

        steps = {
            row.pop("name"): StepUsage(**row)
            for row in fetch(connection, _SQL["steps"], **values)
        }
        outputs = {
            row["name"]: OutputUsage(rows=row["rows"], bytes=size(row["name"]))
            for row in fetch(connection, _SQL["outputs"], **values)
        }
        seconds, cpu_seconds = numbers("seconds"), numbers("cpu_seconds")
    parts = {
        name.removeprefix("publish_"): value
        for name, value in seconds.items()
        if name.startswith("publish_")
    }
    return Usage(
        pipeline=pipeline,
        guarantee=known.guarantee,
        deduplicates=known.horizon_s is not None,
        cpu_seconds=cpu_seconds,
        publish_seconds=parts,
        steps=steps,
        outputs=outputs,
        **totals,
    )
