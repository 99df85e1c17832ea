"""Reads the cost of a pipeline's batches, the size of its state, and what delays it.

``docs/status.md`` gives the formula of every number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.diagnosis.batch_time import MeasuredBatch
from tallyweir.sinks.diagnosis.bottleneck import (
    BATCHES_MAX,
    Bottleneck,
    ServerFacts,
    find_bottleneck,
)
from tallyweir.sinks.postgres.audit.status.overview import LockWait
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.naming import (
    HOME,
    application_name,
    runs_of_pipeline,
    state_table,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.measures import Measures, parse_measures, sum_measures

_BATCH_COSTS = load_statements(
    "tallyweir.sinks.postgres.audit.status", "batch_costs.sql"
)
_OVERVIEW = load_statements("tallyweir.sinks.postgres.audit.status", "overview.sql")
_CATALOG = load_statements("tallyweir.sinks.postgres.audit", "catalog.sql")

_KEYED = ("tallyweir.keyed_state", "tallyweir.keyed_timer")
_POSITIONS = "tallyweir.partition_progress"
#: How many batches are searched for unnamed fields.
_UNNAMED_BATCHES = 1_000
#: The name of the remembered IDs among the sizes of state.
CATALOG = "IDs remembered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Values that a pipeline's functions have observed.

    Attributes:
        p50: The median; at most twice the true value, like ``p95``.
        p95: The 95th percentile.
    """

    count: int
    total: float
    least: float | None
    greatest: float | None
    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomFigures:
    """The reports of a pipeline's own functions, over its newest batches."""

    counts: Mapping[str, float]
    distributions: Mapping[str, Observed]


@dataclass(frozen=True, slots=True, kw_only=True)
class HotKey:
    """A key that many events have.

    Attributes:
        output: The table of the windows or the function.
        key: The key as JSON, or a hash of it that begins with ``#``.
        events: A lower bound of its events, over the newest batches.
        share: Its share of the output's events.
    """

    output: str
    key: str
    events: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnnamedField:
    """A field of events that the pipeline's file does not name.

    Attributes:
        path: Its path, as ``fields`` takes it.
        records: The number of events that had it, as far as each batch counted it.
        since: When the first of the batches that had it was published.
    """

    path: str
    records: int
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSize:
    """Something that a pipeline keeps in the home database between batches.

    Attributes:
        name: What it is.
        rows: Counted for IDs; for tables, the server's estimate.
        bytes: Size with indexes.
        is_shared: Whether the table has rows of other pipelines as well.
    """

    name: str
    rows: int
    bytes: int
    is_shared: bool


def read_bottleneck(
    connection: Connection[TupleRow], pipeline: str, *, lag: int | None
) -> Bottleneck | None:
    """Name what keeps a pipeline from being faster; None if the data cannot tell.

    See ``read_evidence``.
    """
    return find_bottleneck(*read_evidence(connection, pipeline, lag=lag))


def read_evidence(
    connection: Connection[TupleRow], pipeline: str, *, lag: int | None
) -> tuple[tuple[MeasuredBatch, ...], ServerFacts]:
    """Read the evidence for the bottleneck of a pipeline.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline's name.
        lag: Offsets that wait in Kafka; None if Kafka does not respond.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="looking for what blocks a pipeline"):
        audited = read_pipeline(connection, pipeline)
        batches = read_measured(connection, audited, newest=BATCHES_MAX)
        facts = _read_facts(connection, audited, lag)
    return batches, facts


def read_reported(
    connection: Connection[TupleRow], pipeline: str, *, newest: int
) -> tuple[CustomFigures, tuple[HotKey, ...]]:
    """Read what functions have reported in the newest batches, and the hot keys.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading figures that functions reported"):
        audited = read_pipeline(connection, pipeline)
        batches = read_measured(connection, audited, newest=newest)
    return custom_figures(batches), hot_keys(batches)


def read_unnamed(
    connection: Connection[TupleRow], pipeline: str
) -> tuple[UnnamedField, ...]:
    """Read the fields that the present version does not name, the most frequent first.

    Looks at its newest thousand batches.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading unnamed fields"):
        audited = read_pipeline(connection, pipeline)
        rows = fetch(
            connection,
            _BATCH_COSTS["unnamed"],
            pipeline=audited.name,
            after=audited.last_sequence - _UNNAMED_BATCHES,
        )
    return tuple(UnnamedField(**row) for row in rows)


def hot_keys(batches: Sequence[MeasuredBatch]) -> tuple[HotKey, ...]:
    """Add up the hottest keys of some batches, by output, hottest first."""
    added = sum_measures(Measures(hot_keys=one.measures.hot_keys) for one in batches)
    return tuple(
        HotKey(output=output, key=key, events=events, share=events / found.events)
        for output, found in added.hot_keys.items()
        for key, events in found.keys.items()
    )


def custom_figures(batches: Sequence[MeasuredBatch]) -> CustomFigures:
    """Add up what functions have reported."""
    added = sum_measures(
        Measures(counts=m.counts, distributions=m.distributions)
        for m in (batch.measures for batch in batches)
    )
    return CustomFigures(
        counts=added.counts,
        distributions={
            name: Observed(
                count=one.count,
                total=one.total,
                least=one.least,
                greatest=one.greatest,
                p50=one.quantile(0.5),
                p95=one.quantile(0.95),
            )
            for name, one in added.distributions.items()
        },
    )


def read_measured(
    connection: Connection[TupleRow], audited: AuditedPipeline, *, newest: int
) -> tuple[MeasuredBatch, ...]:
    """Read what the newest batches have cost, oldest first, in a snapshot.

    Batches without measures are left out.
    """
    rows = fetch(
        connection,
        _BATCH_COSTS["newest"],
        pipeline=audited.name,
        after=audited.last_sequence - newest,
    )
    return tuple(
        MeasuredBatch(**{**row, "measures": parse_measures(row["measures"])})
        for row in rows
    )


def read_state_sizes(
    connection: Connection[TupleRow], audited: AuditedPipeline
) -> tuple[StateSize, ...]:
    """Read the size of a pipeline's state in the home database, in a snapshot."""
    return tuple(_state_sizes(connection, audited))


def _state_sizes(
    connection: Connection[TupleRow], audited: AuditedPipeline
) -> Iterator[StateSize]:
    windows = {
        state_table(audited.number, output.table).as_string(connection): output.table
        for output in audited.windows
        if HOME in output.databases
    }
    keyed = _keyed(audited)
    found = {
        row["name"]: row
        for row in fetch(
            connection, _BATCH_COSTS["table_sizes"], tables=[*windows, *keyed]
        )
    }
    for name, table in windows.items():
        if name in found:
            yield _size(f"windows of {table}", found[name], is_shared=False)
    for name in keyed:
        yield _size(name.removeprefix("tallyweir."), found[name], is_shared=True)
    if audited.horizon_s is not None:
        runs = f"tallyweir.{runs_of_pipeline(audited.number)}"
        counted = fetch_one(connection, _CATALOG["catalog_size"], pipeline=audited.name)
        size = fetch_one(connection, _BATCH_COSTS["catalog_bytes"], table=runs)
        yield StateSize(
            name=CATALOG,
            rows=counted["ids"],
            bytes=size["bytes"],
            is_shared=False,
        )


def _size(name: str, row: dict[str, int], *, is_shared: bool) -> StateSize:
    return StateSize(
        name=name, rows=row["rows"], bytes=row["bytes"], is_shared=is_shared
    )


def _read_facts(
    connection: Connection[TupleRow], audited: AuditedPipeline, lag: int | None
) -> ServerFacts:
    wait = _read_wait(connection, audited)
    named = {"pipeline": audited.name}
    xmin = fetch(connection, _BATCH_COSTS["oldest_xmin"])
    rows = fetch_one(
        connection, _BATCH_COSTS["dead_rows"], tables=_own_tables(connection, audited)
    )
    last = {**named, "last": audited.last_sequence}
    return ServerFacts(
        lag=lag,
        since_commit_s=fetch_one(connection, _BATCH_COSTS["since_commit"], **last)[
            "seconds"
        ],
        partitions=fetch_one(connection, _BATCH_COSTS["partitions"], **named)[
            "partitions"
        ],
        lock_wait_s=wait.seconds if wait else 0.0,
        lock_told=wait.told() if wait else "",
        lock_is_prepared=wait is not None and not wait.process_id,
        in_doubt_s=fetch_one(connection, _BATCH_COSTS["in_doubt"], **named)["seconds"],
        xmin_s=xmin[0]["seconds"] if xmin else 0.0,
        xmin_holder=xmin[0]["holder"] if xmin else "",
        dead_rows=rows["dead_rows"],
        live_rows=rows["live_rows"],
    )


def _read_wait(
    connection: Connection[TupleRow], audited: AuditedPipeline
) -> LockWait | None:
    claims = fetch(connection, _BATCH_COSTS["newest_claim"], pipeline=audited.name)
    names = {application_name(audited.number, one["epoch"]) for one in claims}
    for row in fetch(connection, _OVERVIEW["waits"]):
        if row.pop("application_name") in names:
            return LockWait(**row)
    return None


def _own_tables(
    connection: Connection[TupleRow], audited: AuditedPipeline
) -> list[str]:
    """Name the tables in which its batches change rows, not only add them."""
    own = [_POSITIONS, *_keyed(audited)]
    for output in audited.windows:
        own.append(output.quoted(connection))
        own.append(state_table(audited.number, output.table).as_string(connection))
    return own


def _keyed(audited: AuditedPipeline) -> tuple[str, ...]:
    """Name the ledger's tables of state and timers if the pipeline keeps any."""
    return _KEYED if any(one.kind.keeps_keys for one in audited.outputs) else ()


_COST = load_statements("tallyweir.sinks.postgres.audit.status", "cost.sql")


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
        totals = fetch_one(connection, _COST["totals"], **values)

        def numbers(name: str) -> dict[str, float]:
            rows = fetch(connection, _COST["numbers"], object=name, **values)
            return {row["name"]: row["value"] for row in rows}

        def size(table: str) -> int | None:
            *given, name = table.split(".", 1)
            (schema,) = given or ["public"]
            found = fetch_one(connection, _COST["size"], schema=schema, table=name)
            return None if found["bytes"] is None else int(found["bytes"])

        steps = {
            row.pop("name"): StepUsage(**row)
            for row in fetch(connection, _COST["steps"], **values)
        }
        outputs = {
            row["name"]: OutputUsage(rows=row["rows"], bytes=size(row["name"]))
            for row in fetch(connection, _COST["outputs"], **values)
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
