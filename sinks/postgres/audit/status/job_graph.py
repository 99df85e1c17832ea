"""A pipeline as a graph of its steps: what flowed along each edge, and sampled rows.

Every record that enters a step leaves it: either to the next step, or aside, for one of
the reasons that the ledger counts. So the numbers on the edges obey the conservation
law, and ``missing`` is the number of records by which they do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.diagnosis.batch_time import PartFigures, StepFigures
from tallyweir.sinks.postgres.audit.status.batch_costs import (
    CustomFigures,
    HotKey,
    StateSize,
    custom_figures,
    hot_keys,
    read_measured,
    read_state_sizes,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    fetch_one,
    fetch_pipeline,
    read_pipeline,
    snapshot,
    topics_of,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.samples import SampledRow, parse_row

_BATCHES = load_statements("tallyweir.sinks.postgres.audit.status", "batches.sql")
_LEDGER = load_statements("tallyweir.sinks.postgres.ledger", "ledger.sql")

#: Where records that become no result leave the line, by the step before.
_ASIDE = {
    "validate": ("dead", "expired", "filtered"),
    "deduplicate": ("duplicate",),
    "stage": ("late",),
}
_COUNTED = ("committed", "duplicate", "dead", "late", "expired", "filtered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One box of the graph.

    Attributes:
        name: A name that is unique in the graph.
        kind: ``topic``, ``step``, ``table`` or ``aside``.
        title: The name shown to people.
        figures: The cost of the step; None if it is not measured.
    """

    name: str
    kind: str
    title: str
    figures: StepFigures | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An edge: the records that flowed from one box to another.

    Attributes:
        records: None if the ledger does not know the share of each edge.
    """

    source: str
    target: str
    records: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGraph:
    """The steps of a pipeline, over its newest batches.

    Attributes:
        batches: How many batches the graph covers.
        counts: ``read``, and what became of it, by the ledger's names.
        missing: Records that were read and are not accounted for; anything but 0 means
            that something is broken.
        parts: The cost of each part of a batch; empty if it was not measured.
        state: What the pipeline keeps in the home database.
        custom: What its own functions have reported.
        hot_keys: The hot keys of each output with windows or keyed state.
        samples: How many rows of each step are kept; 0 if samples are off.
    """

    batches: int
    began_at: datetime | None
    ended_at: datetime | None
    counts: Mapping[str, int]
    missing: int
    steps: tuple[Step, ...]
    edges: tuple[Edge, ...]
    parts: tuple[StepFigures, ...]
    state: tuple[StateSize, ...]
    custom: CustomFigures
    hot_keys: tuple[HotKey, ...]
    samples: int


def read_job_graph(
    connection: Connection[TupleRow], pipeline: str, *, newest: int
) -> JobGraph:
    """Read a pipeline's graph with what its newest batches did.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline's name.
        newest: How many batches to cover.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading a pipeline's graph"):
        audited = read_pipeline(connection, pipeline)
        wanted = {"pipeline": pipeline, "after": audited.last_sequence - newest}
        row = fetch_one(connection, _LEDGER["pipeline_row"], pipeline=pipeline)
        counts = fetch_one(connection, _BATCHES["counts_after"], **wanted)
        outputs = fetch(connection, _BATCHES["outputs"], **wanted)
        span = fetch_one(connection, _BATCHES["span"], **wanted)
        measured = read_measured(connection, audited, newest=newest)
        state = read_state_sizes(connection, audited)
    figures = PartFigures(measured)
    graph = _Graph(row["definition"], counts, outputs, figures.of_boxes())
    return JobGraph(
        **span,
        counts=counts,
        missing=counts["read"] - sum(counts[name] for name in _COUNTED),
        steps=tuple(graph.steps()),
        edges=tuple(graph.edges()),
        parts=figures.of_parts(),
        state=state,
        custom=custom_figures(measured),
        hot_keys=hot_keys(measured),
        samples=row["definition"].get("monitor", {}).get("samples", 0),
    )


class _Graph:
    """Draws a pipeline's definition with its counts."""

    def __init__(
        self,
        definition: Mapping[str, Any],
        counts: Mapping[str, int],
        outputs: list[DictRow],
        figures: Mapping[str, StepFigures],
    ) -> None:
        self._definition = definition
        self._counts = counts
        self._figures = figures
        self._topics = topics_of(definition)
        self._events = {row["output_table"]: row["events"] for row in outputs}
        self._tables = [output["table"] for output in definition["outputs"]]
        computes = ["compute"] if definition.get("compute") else []
        self._line = ["decode", *computes, "validate"]
        if definition.get("deduplicate"):
            self._line.append("deduplicate")
        if definition.get("enrich"):
            self._line.append("enrich")
        self._line += [name for name in ("transform", "predict") if name in figures]
        self._line += ["stage"]
        if "keys" in figures:
            self._line.append("keys")
        self._line.append("publish")

    def steps(self) -> Iterator[Step]:
        for topic in self._topics:
            yield Step(name=f"topic {topic}", kind="topic", title=topic)
        for name in self._line:
            figures = self._figures.get(name)
            yield Step(name=name, kind="step", title=name, figures=figures)
        for table in self._tables:
            yield Step(name=f"table {table}", kind="table", title=table)
        for name in self._aside():
            yield Step(name=name, kind="aside", title=name)

    def edges(self) -> Iterator[Edge]:
        left = self._counts["read"]
        shared = left if len(self._topics) == 1 else None
        for topic in self._topics:
            yield Edge(source=f"topic {topic}", target="decode", records=shared)
        for here, there in pairwise(self._line):
            for reason in _ASIDE.get(here, ()):
                if reason in self._aside():
                    aside = self._counts[reason]
                    yield Edge(source=here, target=reason, records=aside)
                    left -= aside
            # The ledger has one count of dead letters for all steps up to the rules.
            records = None if here in {"decode", "compute"} else left
            yield Edge(source=here, target=there, records=records)
        for table in self._tables:
            taken = self._events.get(table, 0)
            yield Edge(source="publish", target=f"table {table}", records=taken)

    def _aside(self) -> tuple[str, ...]:
        """Name the kinds of aside that this pipeline has had or may have."""
        may = {"dead"}
        if self._definition.get("deduplicate"):
            may |= {"duplicate", "expired"}
        found = {name for name in _COUNTED[1:] if self._counts[name]}
        return tuple(name for name in _COUNTED[1:] if name in may | found)


_KEPT_SAMPLES = load_statements(
    "tallyweir.sinks.postgres.audit.status", "kept_samples.sql"
)

#: In the order that events take; a step is followed by the ways aside from it.
_ORDER = (
    *("decode", "compute", "validate", "dead", "expired", "filtered"),
    *("deduplicate", "duplicate"),
    *("enrich", "transform", "predict", "stage", "late", "keys"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSample:
    """The newest rows of one step.

    Attributes:
        step: Its name in the job graph.
        output: The table of the output that the rows are for; None for events.
        sequence: The batch that the rows are from.
        redacted: Fields that the rows have and that are never kept.
        rows: The rows, newest first.
    """

    step: str
    output: str | None
    sequence: int
    published_at: datetime
    redacted: tuple[str, ...]
    rows: tuple[SampledRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSamples:
    """The samples that a pipeline keeps of its rows.

    Attributes:
        limit: How many rows of each step it keeps; 0 if its file asks for none.
        steps: The steps that had rows, in order.
    """

    limit: int
    steps: tuple[KeptSample, ...]


def read_samples(
    connection: Connection[TupleRow], pipeline: str, *, step: str | None = None
) -> KeptSamples:
    """Read the newest rows of a pipeline's steps.

    The rows have what the events hold, except for what the pipeline redacts. A caller
    that shows them must first check who may see them.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline's name.
        step: Return only the rows of this step.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN`` or ``STEP_UNKNOWN``.
        RetryableError: The server went away.
    """
    if step is not None and step not in _ORDER:
        raise ConfigurationError(
            "STEP_UNKNOWN",
            saw=f"No step is called {step[:40]!r}.",
            why="Samples are kept of the steps of the job graph only.",
            fix=f"Name one of {', '.join(_ORDER)}.",
        )
    with snapshot(connection, doing="reading a pipeline's samples"):
        row = fetch_pipeline(connection, pipeline)
        found = fetch(
            connection, _KEPT_SAMPLES["samples"], pipeline=pipeline, order=list(_ORDER)
        )
    return KeptSamples(
        limit=row["definition"].get("monitor", {}).get("samples", 0),
        steps=tuple(
            KeptSample(
                step=one["step"],
                output=one["output_table"] or None,
                sequence=one["sequence"],
                published_at=one["published_at"],
                redacted=tuple(one["redacted"]),
                rows=tuple(map(parse_row, one["rows"])),
            )
            for one in found
            if step in {None, one["step"]}
        ),
    )
