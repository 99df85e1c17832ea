"""Figures over time of committed batches for charts, from the ledger alone.

``docs/monitor.md`` gives the formula of every line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    fetch_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.ages import quantile_s

_SQL = load_statements("tallyweir.sinks.postgres.audit.status", "charts.sql")

#: How many seconds back status and metrics count as "now".
RECENT_S = 60


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
        committed = fetch(connection, _SQL["committed"], **values)
        phases = fetch(connection, _SQL["phases"], **values)
        letters = fetch(connection, _SQL["dead"], **values)
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
        (row,) = fetch(connection, _SQL["recent"], pipeline=pipeline, seconds=RECENT_S)
    return _figures(row)


def _figures(row: DictRow) -> CommittedFigures:
    ages = {int(bucket): events for bucket, events in row["ages"].items()}
    asked, looked_up, met = row["asked"], row["looked_up"], row["met"]
    return CommittedFigures(
        latency_p50_s=quantile_s(ages, 0.5),
        latency_p95_s=quantile_s(ages, 0.95),
        latency_p99_s=quantile_s(ages, 0.99),
        looked_up_share=looked_up / asked if asked else None,
        false_positive_share=(looked_up - met) / asked if asked else None,
    )
