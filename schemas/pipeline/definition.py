"""The model of a pipeline, which YAML files and Python programs both build.

Every part checks itself when it is built, and ``Pipeline`` checks conditions over
several parts. So an existing instance is valid as far as can be known without its
contracts; ``columns.check_columns`` does the rest. No part holds a secret or depends on
where or when it runs: two processes with equal pipelines do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tallyweir.schemas.pipeline.checks.databases import HOME, check_declaration
from tallyweir.schemas.pipeline.checks.names import (
    KAFKA_PREFIX,
    RESERVED_COLUMNS,
    check_distinct,
    check_output_column,
    check_pipeline_name,
)
from tallyweir.schemas.pipeline.checks.problems import (
    Problem,
    empty_value,
    raise_if_any,
)
from tallyweir.schemas.pipeline.events.deduplicate import (
    Deduplicate,
    check_future_buckets,
    check_one_history,
    check_repeats_can_be_known,
)
from tallyweir.schemas.pipeline.events.enrichment import Enrichment
from tallyweir.schemas.pipeline.events.monitoring import Monitoring, Reported
from tallyweir.schemas.pipeline.events.prediction import Prediction
from tallyweir.schemas.pipeline.events.source import KAFKA_TIMESTAMP, Source
from tallyweir.schemas.pipeline.events.validation import DeadLetterLimit, Rule
from tallyweir.schemas.pipeline.expressions.expressions import (
    check_condition,
    inspect_expression,
)
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output
from tallyweir.sinks.protocol.guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


Transform: TypeAlias = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A named path from topics to result tables.

    Attributes:
        name: Identity in the ledger: offsets, IDs and windows belong to it.
        source: Source of the events.
        guarantee: Rows are in the tables exactly once, or at least once, which is
            cheaper.
        deduplicate: None if the source never repeats an event, or if repeats are fine;
            must be None with at least once.
        compute: New column to Spark SQL over the event's fields, ``kafka_topic`` and
            the columns before it. An event for which one has no value is a dead letter.
        validate: Rules in order; the first broken one gives the dead letter its reason.
        enrich: Lookups, in order.
        transform: Adds columns to the events after all lookups; in Python only. It gets
            one row for each event, and must return one row for each.
        predict: Models that compute columns, in order; each sees the columns of
            lookups, of the transform and of the models before it.
        code_version: Version of the pipeline's functions in the ledger; if empty, a
            Python file's pipeline gets the hash of its sources.
        filter: Spark SQL over all columns of the event; if it is not true, only the
            event's position is kept.
        reported: Figures computed from columns of the events, such as columns of the
            transform; in Python only.
        dead_letter_limit: Limit at which the driver pauses the pipeline; None for none.
        monitor: Settings for what the monitor may show of its events.
        outputs: Outputs, at least one.
        databases: Name to libpq connection string, without secrets; empty if the
            driver's environment must give it. Not part of the identity: pipelines that
            differ only here are equal.

    Raises:
        PipelineError: The parts do not fit together; it names every problem.
    """

    name: str
    source: Source
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    deduplicate: Deduplicate | None = field(default_factory=Deduplicate)
    compute: Mapping[str, str] = field(default_factory=dict)
    validate: tuple[Rule, ...] = ()
    enrich: tuple[Enrichment, ...] = ()
    transform: Transform | None = None
    predict: tuple[Prediction, ...] = ()
    code_version: str = ""
    filter: str | None = None
    reported: Reported = field(default_factory=Reported)
    dead_letter_limit: DeadLetterLimit | None = None
    monitor: Monitoring = field(default_factory=Monitoring)
    outputs: tuple[Output, ...]
    databases: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def wanted_databases(self) -> Mapping[str, str]:
        """All databases but the home that a driver needs or the pipeline declares."""
        looked_up = {one.database: "" for one in self.enrich}
        wanted = {**looked_up, **self.written_databases, **self.databases}
        wanted.pop(HOME, None)
        return wanted

    @property
    def written_databases(self) -> Mapping[str, str]:
        """All databases but the home that have an output, which executors need."""
        named = {name for one in self.outputs for name in one.databases}
        return {name: self.databases.get(name, "") for name in sorted(named - {HOME})}

    @property
    def has_code(self) -> bool:
        """Whether it has functions of users."""
        has_functions = any(output.has_code for output in self.outputs)
        return self.transform is not None or has_functions

    def __post_init__(self) -> None:
        raise_if_any("Pipeline", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        yield from check_pipeline_name(self.name, ("name",))
        for name, conninfo in self.databases.items():
            yield from check_declaration(name, conninfo, ("databases", name))
        yield from _check_compute(self.compute)
        codes = [rule.reason_code for rule in self.validate]
        yield from check_distinct(codes, "rules", ("validate",))
        for problem in check_condition(self.filter):
            yield problem.under("filter")
        added = [column for one in self.enrich for column in one.select]
        yield from check_distinct(added, "looked up columns", ("enrich",))
        predicted = [column for one in self.predict for column in one.new_columns]
        yield from check_distinct(predicted, "predicted columns", ("predict",))
        if not self.outputs:
            yield empty_value(("outputs",))
        yield from check_guarantee(self.guarantee, self.deduplicate, self.outputs)
        yield from check_repeats_can_be_known(self.deduplicate, self.source)
        yield from check_time_is_a_column(self.source, self.outputs)
        yield from check_one_history(self.deduplicate, self.source)
        yield from check_future_buckets(self.deduplicate, self.source)
        taken: set[str] = set()
        for index, output in enumerate(self.outputs):
            # Where no schema is named, the server's search path decides: public.
            for key, name in output.names.items():
                table = name.removeprefix("public.").casefold()
                if table in taken:
                    yield Problem(
                        code="PIPELINE_DUPLICATE_NAME",
                        at=("outputs", index, key),
                        saw=f"Two outputs write the table {name!r}.",
                        why="Their rows could not be distinguished.",
                        fix="Give one of them another table.",
                    )
                taken.add(table)
            if output.sends_to in self.source.topics:
                yield Problem(
                    code="PIPELINE_DUPLICATE_NAME",
                    at=("outputs", index, "topic"),
                    saw=f"The outbox sends to {output.sends_to!r}, the pipeline's "
                    "source.",
                    why="Each message would return as an event, in an endless loop.",
                    fix="Give the outbox another topic.",
                )


def _check_compute(compute: Mapping[str, str]) -> Iterator[Problem]:
    for name, expression in compute.items():
        at = ("compute", name)
        yield from check_output_column(name, at)
        if name.casefold().startswith(KAFKA_PREFIX) and name not in RESERVED_COLUMNS:
            yield Problem(
                code="PIPELINE_RESERVED_NAME",
                at=at,
                saw=f"The computed column is called {name!r}.",
                why=f"Names that begin with {KAFKA_PREFIX} are those of Kafka's own "
                "columns.",
                fix="Choose another name.",
            )
        for problem in inspect_expression(expression).problems:
            yield problem.under(*at)


_FIX = "Write guarantee: exactly_once, which is also the default."


def check_time_is_a_column(
    source: Source, outputs: Sequence[Output]
) -> Iterator[Problem]:
    """Yield outputs that read the event's time where no column holds it."""
    if source.event_time != KAFKA_TIMESTAMP:
        return
    for index, output in enumerate(outputs):
        if output.reads_event_time:
            yield Problem(
                code="PIPELINE_VALUE",
                at=("outputs", index),
                saw=f"The event time of {output.table} is Kafka's timestamp.",
                why="Joins, and functions with state, read the time from a field.",
                fix="Name a field as source.event_time, or use another output.",
            )


def check_guarantee(
    guarantee: Guarantee,
    deduplicate: Deduplicate | None,
    outputs: Sequence[Output],
) -> Iterator[Problem]:
    """Yield settings that make no sense, or are not supported, with at least once."""
    if not isinstance(guarantee, Guarantee):
        yield Problem(
            code="PIPELINE_VALUE",
            at=("guarantee",),
            saw=f"guarantee is {guarantee!r}.",
            why="The guarantee defines how a crash may affect the results.",
            fix="Use one of the members of Guarantee.",
        )
    if guarantee is not Guarantee.AT_LEAST_ONCE:
        return
    if deduplicate is not None:
        yield _problem(
            ("deduplicate",),
            "The pipeline has guarantee at_least_once and drops repeats.",
            (
                "The pipeline remembers no IDs, so an event that a producer sends "
                "twice, or that a crash repeats, is written twice."
            ),
            "Write deduplicate: off (in Python, deduplicate=None), or guarantee: "
            "exactly_once.",
        )
    for index, output in enumerate(outputs):
        at = ("outputs", index)
        if output.unrepeatable is not None:
            what, why = output.unrepeatable
            saw = f"The pipeline has guarantee at_least_once, and the output {what}."
            yield _problem(at, saw, why, _FIX)
        elif output.databases != (HOME,) or output.transactions > 1:
            yield _problem(
                at,
                (
                    "The pipeline has guarantee at_least_once, and the output is in "
                    "another database or in branches."
                ),
                (
                    "Tasks already copy in parallel, and only the database that "
                    "stores the offsets is certain to hold the rows that they copied."
                ),
                f"Leave out database, shard_by and branches. {_FIX}",
            )


def _problem(at: tuple[str | int, ...], saw: str, why: str, fix: str) -> Problem:
    return Problem(code="PIPELINE_GUARANTEE", at=at, saw=saw, why=why, fix=fix)
