"""The ledger for people to look through: batch by batch, and added up over time.

``docs/monitor.md`` gives the formula of every line of a chart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.status.progress import RECENT_S
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    fetch_pipeline,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.measures import age_quantile_s

_BATCHES = load_statements("tallyweir.sinks.postgres.audit.status", "batches.sql")

#: How many batches make one page.
PAGE = 50
_AFTER_ALL = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBatch:
    """One published batch.

    Attributes:
        ranges: Topic, partition, first offset, and the offset after the last.
        restagings: How often it was staged again without rows that Postgres refused.
        stage_s: Seconds from its plan to the last vote.
        publish_s: Seconds from then to its row in the ledger, waits included.
        branches: How many branches commit it, or have done so.
    """

    sequence: int
    epoch: int
    guarantee: str
    restagings: int
    watermark_after: datetime | None
    planned_at: datetime
    published_at: datetime
    stage_s: float
    publish_s: float
    read: int
    committed: int
    duplicate: int
    dead: int
    late: int
    expired: int
    filtered: int
    ranges: list[tuple[str, int, int, int]]
    branches: int
    branches_in_doubt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOfTime:
    """The batches that were published in a slot of time, added up.

    Attributes:
        began_s: When the slot began, in seconds since 1970.
        batch_p50_s: The median of the seconds from plan to publish.
        batch_p95_s: The 95th percentile of the same.
    """

    began_s: int
    batches: int
    read: int
    duplicate: int
    dead: int
    late: int
    batch_p50_s: float
    batch_p95_s: float


def read_batches(
    connection: Connection[TupleRow],
    pipeline: str,
    *,
    before: int | None = None,
    limit: int = PAGE,
) -> tuple[LedgerBatch, ...]:
    """Read the newest batches, or those before a given one, newest first.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    rows = _read(
        connection,
        pipeline,
        "page",
        before=_AFTER_ALL if before is None else before,
        limit=limit,
    )
    return tuple(LedgerBatch(**row) for row in rows)


def read_history(
    connection: Connection[TupleRow], pipeline: str, *, slot_s: int, slots: int
) -> tuple[SlotOfTime, ...]:
    """Add up the newest batches over slots of time, oldest first.

    A slot in which nothing was published is left out.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    rows = _read(connection, pipeline, "history", slot_s=slot_s, slots=slots)
    return tuple(SlotOfTime(**row) for row in rows)


def _read(
    connection: Connection[TupleRow], pipeline: str, statement: str, **values: object
) -> list[Mapping[str, Any]]:
    with snapshot(connection, doing="reading the ledger"):
        read_pipeline(connection, pipeline)
        return list(fetch(connection, _BATCHES[statement], pipeline=pipeline, **values))


_CHARTS = load_statements("tallyweir.sinks.postgres.audit.status", "charts.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFigures:
    """Figures of the batches of one slot of time.

    Attributes:
        latency_p50_s: Median seconds from when Kafka had an event until right before
            its COMMIT. Accurate to a tenth, like the next two. None if no event has a
            time.
        latency_p95_s: The 95th percentile of the same.
        latency_p99_s: The 99th percentile of the same.
        looked_up_share: Searches in the catalog that no filter spared, divided by the
            IDs that tasks asked for. None if no task asked.
        false_positive_share: The searches among them that found nothing, divided by the
            same number of IDs.
    """

    latency_p50_s: float | None
    latency_p95_s: float | None
    latency_p99_s: float | None
    looked_up_share: float | None
    false_positive_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    """Slots of time, each by the seconds since 1970 at which it began.

    A slot in which nothing was published is left out.

    Attributes:
        committed: Latency, and the cost of looking up IDs.
        stage_s: Median seconds of a batch from its plan to its last vote.
        publish_s: Median seconds from then to its row in the ledger.
        dead: Dead letters by reason.
    """

    committed: Mapping[int, CommittedFigures]
    stage_s: Mapping[int, float]
    publish_s: Mapping[int, float]
    dead: Mapping[str, Mapping[int, int]]


def read_charts(
    connection: Connection[TupleRow], pipeline: str, *, slot_s: int, slots: int
) -> Charts:
    """Add up the newest batches over slots of time.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, or a table may not be read.
        RetryableError: The server went away.
    """
    values = {"pipeline": pipeline, "slot_s": slot_s, "slots": slots}
    with snapshot(connection, doing="reading charts of a pipeline"):
        fetch_pipeline(connection, pipeline)
        committed = fetch(connection, _CHARTS["committed"], **values)
        phases = fetch(connection, _CHARTS["phases"], **values)
        letters = fetch(connection, _CHARTS["dead"], **values)
    dead: dict[str, dict[int, int]] = {}
    for row in letters:
        dead.setdefault(row["reason"], {})[row["began_s"]] = row["letters"]
    return Charts(
        committed={row["began_s"]: _figures(row) for row in committed},
        stage_s={row["began_s"]: row["stage_p50_s"] for row in phases},
        publish_s={row["began_s"]: row["publish_p50_s"] for row in phases},
        dead=dead,
    )


def read_recent_figures(
    connection: Connection[TupleRow], pipeline: str
) -> CommittedFigures:
    """Read the figures of the batches that were published in the last minute.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading figures of the last minute"):
        fetch_pipeline(connection, pipeline)
        (row,) = fetch(
            connection, _CHARTS["recent"], pipeline=pipeline, seconds=RECENT_S
        )
    return _figures(row)


def _figures(row: DictRow) -> CommittedFigures:
    ages = {int(bucket): events for bucket, events in row["ages"].items()}
    asked, looked_up, met = row["asked"], row["looked_up"], row["met"]
    return CommittedFigures(
        latency_p50_s=age_quantile_s(ages, 0.5),
        latency_p95_s=age_quantile_s(ages, 0.95),
        latency_p99_s=age_quantile_s(ages, 0.99),
        looked_up_share=looked_up / asked if asked else None,
        false_positive_share=(looked_up - met) / asked if asked else None,
    )
