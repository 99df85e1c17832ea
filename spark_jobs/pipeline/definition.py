"""What a pipeline is: the one model that YAML files and Python programs both build.

Every part checks itself when it is built, and ``Pipeline`` checks what concerns
several parts, so an instance that exists is valid as far as can be known without its
contract; ``columns.check_columns`` does the rest. No part holds a secret, and none
depends on where or when it runs: two processes with equal pipelines do the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

from spark_jobs.pipeline.aggregate import Aggregate
from spark_jobs.pipeline.databases import (
    HOME,
    check_databases,
    check_declaration,
    check_split,
)
from spark_jobs.pipeline.durations import EXAMPLES, format_duration
from spark_jobs.pipeline.expressions import inspect_expression
from spark_jobs.pipeline.names import (
    check_column,
    check_distinct,
    check_output_column,
    check_output_table,
    check_pipeline_name,
    check_reason_code,
    check_table,
    check_topic,
)
from spark_jobs.pipeline.outbox import OutboxOutput
from spark_jobs.pipeline.problems import Path, Problem, raise_if_any, suggest

IDLE_TIMEOUT = timedelta(minutes=1)
FUTURE_BOUND = timedelta(days=1)
DEDUPLICATE_HORIZON = timedelta(days=7)
REFRESH = timedelta(minutes=10)

Scalar: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderId:
    """The producer's ID travels in a Kafka header.

    ``ce_id`` is taken together with ``ce_source``: CloudEvents promises that the
    pair is unique, not the ID alone.
    """

    header: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The topic, and what the pipeline must know about each of its events.

    Attributes:
        topic: The Kafka topic.
        schema: A contract's name (``flight_departure.v1``), or the path of an
            ``.avsc`` file beside the pipeline file.
        event_id: The field or header with the producer's ID.
        event_time: The field that says when the event happened.
        watermark_delay: How far behind the newest event time of a partition an
            older event is still expected.
        idle_timeout: After so long without events a partition no longer holds the
            watermark back.
        future_bound: Event times further ahead than this are dead letters.
    """

    topic: str
    schema: str
    event_id: str | HeaderId
    event_time: str
    watermark_delay: timedelta
    idle_timeout: timedelta = IDLE_TIMEOUT
    future_bound: timedelta = FUTURE_BOUND

    def __post_init__(self) -> None:
        raise_if_any("Source", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_topic(self.topic, ("topic",))
        if not self.schema:
            yield _empty(("schema",))
        if isinstance(self.event_id, str):
            yield from check_column(self.event_id, ("event_id",))
        elif not self.event_id.header.strip():
            yield _empty(("event_id",))
        yield from check_column(self.event_time, ("event_time",))
        yield from _check_duration(self.watermark_delay, ("watermark_delay",))
        for name in ("idle_timeout", "future_bound"):
            yield from _check_duration(getattr(self, name), (name,), zero=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicate:
    """Drop what a producer sent twice.

    Attributes:
        horizon: How far back, in event time, an ID is remembered. An event older
            than that cannot be checked and goes to the expired table.
        conflicts: Whether an ID that comes again with another payload becomes a dead
            letter ``ID_CONFLICT`` instead of counting as a duplicate.
    """

    horizon: timedelta = DEDUPLICATE_HORIZON
    conflicts: bool = True

    def __post_init__(self) -> None:
        raise_if_any(
            "Deduplicate", _check_duration(self.horizon, ("horizon",), zero=False)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What must be true of an event; else it is a dead letter.

    Attributes:
        reason_code: What the dead letter says, in UPPER_SNAKE_CASE.
        condition: Spark SQL over the event's fields. Null counts as false.
    """

    reason_code: str
    condition: str

    def __post_init__(self) -> None:
        raise_if_any("Rule", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_reason_code(self.reason_code, ())
        yield from inspect_expression(self.condition).problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrichment:
    """Columns looked up in a Postgres table that fits into memory.

    Attributes:
        table: The lookup table.
        on: Event column to lookup column; all must be equal.
        select: New column to lookup column.
        default: New column to its value where nothing matches; else null.
        refresh: How old the copy of the table may become.
    """

    table: str
    on: Mapping[str, str]
    select: Mapping[str, str]
    default: Mapping[str, Scalar] = field(default_factory=dict)
    refresh: timedelta = REFRESH

    def __post_init__(self) -> None:
        raise_if_any("Enrichment", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_table(self.table, ("table",))
        for name, pairs in (("on", self.on), ("select", self.select)):
            if not pairs:
                yield _empty((name,))
            for lookup in pairs.values():
                yield from check_column(lookup, (name,))
        for column in self.select:
            yield from check_output_column(column, ("select", column))
        for column in self.default:
            if column not in self.select:
                yield Problem(
                    code="PIPELINE_UNKNOWN_COLUMN",
                    at=("default", column),
                    saw=f"There is a default for {column!r}.",
                    why="A default is for a column that select makes.",
                    fix=f"Write one of {', '.join(self.select)}.",
                )
        yield from _check_duration(self.refresh, ("refresh",), zero=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendOutput:
    """One row for each event.

    Attributes:
        table: Where to; made when missing.
        columns: Which; None for all of the event's fields and all looked up.
        databases: Where the table is; with several, each row is in one of them.
        shard_by: Fields of the event whose values choose among several databases.
        branches: How many transactions publish it at a time in its one database.
    """

    table: str
    columns: tuple[str, ...] | None = None
    databases: tuple[str, ...] = (HOME,)
    shard_by: tuple[str, ...] = ()
    branches: int = 1

    def __post_init__(self) -> None:
        raise_if_any("AppendOutput", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_output_table(self.table, ("table",))
        yield from check_databases(self.databases, ("databases",))
        yield from check_split(self.databases, self.shard_by, self.branches)
        if self.columns is None:
            return
        if not self.columns:
            yield _empty(("columns",))
        for index, column in enumerate(self.columns):
            yield from check_output_column(column, ("columns", index))
        yield from check_distinct(list(self.columns), "columns", ("columns",))


class Late(StrEnum):
    """What becomes of an event that comes after its window's on-time pane.

    ``REVISE`` corrects the window's row within ``allowed_lateness``; later events go
    to the late_event table. ``SIDE_TABLE`` puts all of them there, and ``DROP`` only
    counts them: the row stays as it was when the watermark passed.
    """

    REVISE = "revise"
    SIDE_TABLE = "side_table"
    DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOutput:
    """One row for each window of event time and each group in it.

    Attributes:
        table: Where to; made when missing.
        size: Length of the window; windows begin at multiples of it since
            1970-01-01 00:00 UTC.
        by: Columns of the event, or looked up, whose values make the groups.
        aggregates: What is kept of each group.
        allowed_lateness: How long after the on-time pane ``REVISE`` may revise.
        late: What becomes of late events.
        databases: As in ``AppendOutput``.
        shard_by: As in ``AppendOutput``; columns of ``by``, so that all events of a
            group go to one database.
    """

    table: str
    size: timedelta
    by: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...]
    allowed_lateness: timedelta = timedelta()
    late: Late = Late.REVISE
    databases: tuple[str, ...] = (HOME,)
    shard_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        raise_if_any("WindowOutput", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_output_table(self.table, ("table",))
        yield from _check_duration(self.size, ("size",), zero=False)
        for index, column in enumerate(self.by):
            yield from check_output_column(column, ("by", index))
        if not self.aggregates:
            yield _empty(("aggregates",))
        columns = [*self.by, *(aggregate.column for aggregate in self.aggregates)]
        yield from check_distinct(columns, "columns", ())
        yield from _check_duration(self.allowed_lateness, ("allowed_lateness",))
        yield from check_databases(self.databases, ("databases",))
        yield from check_split(self.databases, self.shard_by)
        for index, column in enumerate(self.shard_by):
            if column not in self.by:
                yield Problem(
                    code="PIPELINE_UNKNOWN_COLUMN",
                    at=("shard_by", index),
                    saw=f"by does not have {column!r}.",
                    why="All events of a group must go to one database.",
                    fix=suggest(column, self.by),
                )


Output: TypeAlias = AppendOutput | WindowOutput | OutboxOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A named way from one topic to results tables.

    Attributes:
        name: Identity in the ledger: offsets, IDs and windows belong to it.
        source: Where events come from.
        deduplicate: None only where the source cannot repeat itself.
        validate: Rules in the order in which they are tried; the first broken one
            gives the dead letter its reason.
        enrich: Lookups, in order.
        outputs: At least one.
        databases: Name to libpq connection string, without secrets; empty where the
            driver's environment must give it. No part of what the pipeline is: two
            that only differ here are equal.

    Raises:
        PipelineError: The parts do not fit together; it names every problem.
    """

    name: str
    source: Source
    deduplicate: Deduplicate | None = field(default_factory=Deduplicate)
    validate: tuple[Rule, ...] = ()
    enrich: tuple[Enrichment, ...] = ()
    outputs: tuple[Output, ...]
    databases: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def wanted_databases(self) -> Mapping[str, str]:
        """Every database but the home: declared, or named by an output."""
        named = {name: "" for one in self.outputs for name in one.databases}
        wanted = {**named, **self.databases}
        wanted.pop(HOME, None)
        return wanted

    def __post_init__(self) -> None:
        raise_if_any("Pipeline", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_pipeline_name(self.name, ("name",))
        for name, conninfo in self.databases.items():
            yield from check_declaration(name, conninfo, ("databases", name))
        codes = [rule.reason_code for rule in self.validate]
        yield from check_distinct(codes, "rules", ("validate",))
        added = [column for one in self.enrich for column in one.select]
        yield from check_distinct(added, "looked up columns", ("enrich",))
        if not self.outputs:
            yield _empty(("outputs",))
        taken: set[str] = set()
        for index, output in enumerate(self.outputs):
            # Where no schema is named, the server's search path decides: public.
            table = output.table.removeprefix("public.").casefold()
            if table in taken:
                yield Problem(
                    code="PIPELINE_DUPLICATE_NAME",
                    at=("outputs", index, "table"),
                    saw=f"Two outputs write the table {output.table!r}.",
                    why="Their rows could not be told apart.",
                    fix="Give one of them another table.",
                )
            taken.add(table)
            if isinstance(output, OutboxOutput) and output.topic == self.source.topic:
                yield Problem(
                    code="PIPELINE_DUPLICATE_NAME",
                    at=("outputs", index, "topic"),
                    saw=f"The outbox sends to {output.topic!r}, the pipeline's source.",
                    why="Each message would come back as an event, for ever.",
                    fix="Give the outbox another topic.",
                )


def _empty(at: Path) -> Problem:
    return Problem(
        code="PIPELINE_VALUE",
        at=at,
        saw=f"{at[-1]} is empty.",
        why="Without it there is nothing to do.",
        fix="Fill it in.",
    )


def _check_duration(
    duration: timedelta, at: Path, *, zero: bool = True
) -> Iterator[Problem]:
    try:
        format_duration(duration)
    except ValueError as exc:
        seen = str(exc)
    else:
        if duration or zero:
            return
        seen = "it is zero"
    yield Problem(
        code="PIPELINE_DURATION",
        at=at,
        saw=f"{at[-1]} cannot be used: {seen}.",
        why=f"Durations are whole milliseconds{'' if zero else ', above zero'}.",
        fix=f"Write a duration such as {EXAMPLES}.",
    )
