"""Compute columns of raw Kafka records in Spark, for the tasks that stage the records.

A task itself decodes the fields of its events from the payload, which it needs anyway.
It gets the values that Spark computes (conditions, lookups, users' transforms) as
additional columns. The JVM decodes events only for those.

A pipeline is a function of one DataFrame, so the same code serves a micro-batch of a
stream and a range of a topic. Every expression is deterministic: a replay of the same
offsets gives the same rows, and so does another attempt of a task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import or_
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import ArrayType, MapType, StructType

from tallyweir.schemas.event_contracts import EventContracts
from tallyweir.schemas.pipeline.checks.names import KAFKA_TOPIC, RESERVED_PREFIX
from tallyweir.schemas.pipeline.checks.problems import raise_if_any
from tallyweir.schemas.pipeline.columns import (
    check_columns,
    columns_by_step,
    named_kafka_columns,
    reads_headers,
)
from tallyweir.schemas.pipeline.definition import Pipeline, Transform
from tallyweir.schemas.pipeline.events.kafka_columns import COPIED_COLUMNS
from tallyweir.schemas.pipeline.events.source import KAFKA_TIMESTAMP, HeaderId
from tallyweir.schemas.pipeline.expressions.expressions import levels_of
from tallyweir.schemas.pipeline.outputs.aggregate import AggregateFunction
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output
from tallyweir.schemas.pipeline.redaction import find_redaction_problems
from tallyweir.schemas.schema_tree import NESTED_TYPES
from tallyweir.sinks.protocol.column_names import stored_name
from tallyweir.spark_jobs.frame.decoded_values import with_fields
from tallyweir.spark_jobs.frame.enrichment_join import LookupCopy, enrich
from tallyweir.spark_jobs.frame.exact_expressions import TriedExpressions
from tallyweir.spark_jobs.frame.kafka_values import (
    HEADERS_TYPE,
    header_columns,
    last_header,
    usable_columns,
)
from tallyweir.spark_jobs.frame.predictor import Predictor
from tallyweir.spark_jobs.frame.transformed_events import apply_transform
from tallyweir.spark_jobs.source.event_columns import (
    BAD_HEADER,
    BROKEN_RULE,
    EVENT_ID,
    EVENT_TIME,
    FAILED,
    FILTERED_BY,
    ID_SOURCE,
    KEY,
    MISFIT,
    MODEL_ERROR,
    OFFSET,
    ORIGINAL,
    PLACE,
    TIMESTAMP,
    UNCOMPUTED,
    UNDECODED,
    VALUE,
    argument_column,
    branch_column,
    side_column,
    wanted_column,
)
from tallyweir.spark_jobs.source.source_places import SourcePlaces

_Made = TypeVar("_Made")

#: The columns that exist before decoding.
_AS_READ = frozenset(
    {PLACE, OFFSET, TIMESTAMP, KEY, VALUE, EVENT_ID, ID_SOURCE, ORIGINAL, MISFIT}
    | {BAD_HEADER}
)


def choose_branch(columns: Sequence[str], ways: int) -> Column:
    """Choose one of several databases by the values of columns; null is a value.

    This function can never change: rows lie where it has put them, and users find them
    by it.
    """
    named = (F.col(f"`{name}`") for name in columns)
    return F.pmod(F.xxhash64(*named), F.lit(ways)).cast("int")


def _nested_as_json(events: DataFrame) -> DataFrame:
    """Write arrays, maps and records as JSON, the form in which Postgres stores them.

    This escapes a NUL character in them, and ``jsonb`` then refuses only that row.
    """
    nested = {
        column.name: F.to_json(F.col(column.name), {"ignoreNullFields": "false"})
        for column in events.schema.fields
        if isinstance(column.dataType, ArrayType | MapType | StructType)
    }
    return events.withColumns(nested) if nested else events


class _MadeOnce:
    """Caches objects of one batch that later batches can use again."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}
        self._types: object = None

    def expect(self, types: object) -> None:
        """Clear the cache if types that may change between batches have changed."""
        if types != self._types:
            self._made.clear()
            self._types = types

    def once(self, name: str, make: Callable[[], _Made]) -> _Made:
        """Return the object with a name; make it if the cache lacks it."""
        if name not in self._made:
            self._made[name] = make()
        made: _Made = self._made[name]
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFrameRecipe:
    """How one pipeline's raw records become event columns.

    Attributes:
        pipeline: The pipeline.
        contracts: The contracts by which its events are read.
        predictors: One for each prediction of the pipeline.
        made: The objects made from its expressions, cached for all batches.
    """

    pipeline: Pipeline
    contracts: EventContracts
    predictors: Sequence[Predictor] = ()
    made: _MadeOnce = field(default_factory=_MadeOnce)

    @property
    def aliases(self) -> dict[str, str]:
        """Our names of columns that hold event fields, mapped to the fields' names.

        A task reads these columns under both names.
        """
        source = self.pipeline.source
        names = {EVENT_TIME: self.time_column}
        if isinstance(source.event_id, str):
            names[EVENT_ID] = source.event_id
        return names

    @property
    def id_parts(self) -> tuple[str, ...]:
        """The columns whose values are the event's ID together; none if one is."""
        source = self.pipeline.source
        if not isinstance(source.event_id, tuple):
            return ()
        return tuple(map(stored_name, source.id_columns))

    def kafka_columns(self, added: Sequence[str] = ()) -> tuple[str, ...]:
        """Name what the pipeline uses of Kafka's records, as expressions call it.

        Args:
            added: The columns that its transform adds.
        """
        fields = [one.name for one in self.contracts.fields]
        found = named_kafka_columns(self.pipeline, fields, added)
        return tuple(one.name for one in found)

    @property
    def time_column(self) -> str:
        """The column with the event's time."""
        event_time = self.pipeline.source.event_time
        return TIMESTAMP if event_time == KAFKA_TIMESTAMP else event_time

    def decoded_fields(self, read: Collection[str]) -> tuple[str, ...]:
        """Name the fields that a task decodes itself, among the columns that it reads.

        Spark writes fields with parts as JSON for the tables.
        """
        wanted = self._wanted(read)
        return tuple(
            field.name
            for field in self.contracts.fields
            if field.name in wanted and field.type not in NESTED_TYPES
        )

    def copied_columns(self, read: Collection[str]) -> tuple[str, ...]:
        """Name what a task takes from the key, time and place of a record itself."""
        wanted = self._wanted(read)
        return tuple(
            name
            for name in self.kafka_columns()
            if name in wanted and name in COPIED_COLUMNS
        )

    @property
    def id_field(self) -> str | None:
        """The field of the payload that is the event's ID; None if another part is."""
        name = self.aliases.get(EVENT_ID)
        fields = self.contracts.payload_fields
        return next((one.name for one in fields if one.name == name), None)

    def _wanted(self, read: Collection[str]) -> frozenset[str]:
        reported, aliases = self.pipeline.reported, self.aliases
        return frozenset({*read, *reported.columns, *aliases.values(), *self.id_parts})

    def for_tasks(self, events: DataFrame, read: Collection[str]) -> DataFrame:
        """Select the columns for the tasks, which decode plain fields themselves.

        Args:
            events: The result of ``build``.
            read: The event columns that the outputs read.
        """
        computed = self._computed(events.columns, read)
        of_headers = self._of_headers()
        as_read = [
            name for name in events.columns if name in _AS_READ or name in of_headers
        ]
        return _nested_as_json(events.select(*as_read, *computed))

    def computes_nothing(self, events: DataFrame, read: Collection[str]) -> bool:
        """Tell whether ``for_tasks`` returns a stream's records as they were read.

        Then ``columns_as_read`` gives the same result. It saves Spark from analysing
        expressions that it drops in the end, which takes longer than reading a small
        batch.

        Args:
            events: The result of ``build`` for the stream's records.
            read: The event columns that the outputs read.
        """
        pipeline = self.pipeline
        if pipeline.transform is not None or pipeline.enrich or self.predictors:
            return False
        return not self._computed(events.columns, read)

    def columns_as_read(self, places: SourcePlaces) -> list[Column]:
        """Return the columns of a stream's records that need no decoding.

        Args:
            places: Numbers the places of the records.
        """
        return [
            places.column().alias(PLACE),
            F.col("offset").alias(OFFSET),
            F.col("timestamp").alias(TIMESTAMP),
            F.col("key").alias(KEY),
            F.col("value").alias(VALUE),
            *self._header_ids(),
            *header_columns(self.kafka_columns()),
        ]

    def _computed(self, columns: Sequence[str], read: Collection[str]) -> list[str]:
        """Name the columns that tasks need but do not compute themselves."""
        by_task = {
            *self.decoded_fields(read),
            *self.copied_columns(read),
            *self._of_headers(),
        }
        wanted = {*read, *self.pipeline.reported.columns, *self.id_parts}
        computed = [
            name
            for name in columns
            if (name.startswith(RESERVED_PREFIX) and name not in _AS_READ)
            or (name in wanted and name not in by_task)
        ]
        return [] if computed == [UNDECODED] else computed

    @property
    def model_versions(self) -> dict[str, str]:
        """The version of each model, by the name of its file."""
        return {p.prediction.model: p.version for p in self.predictors}

    def build(
        self, raw: DataFrame, lookups: list[LookupCopy], places: SourcePlaces
    ) -> DataFrame:
        """Return one row per record of ``raw``, undecodable ones included.

        Args:
            raw: The records as Spark's Kafka source delivers them; records from a file
                also have the columns ``ORIGINAL`` and ``MISFIT``.
            lookups: One for each enrichment of the pipeline.
            places: Numbers the places of the records.
        """
        *_, (_, events) = self.steps(raw, lookups, places)
        return events

    def steps(
        self, raw: DataFrame, lookups: list[LookupCopy], places: SourcePlaces
    ) -> Iterator[tuple[str, DataFrame]]:
        """Yield the name of each step of ``build`` and the rows after it.

        The last rows are the result of ``build``. Steps that the pipeline does not have
        are left out.
        """
        events = raw
        for name, events in self.rows(raw, lookups, places):
            yield name, events
        yield "conditions", self.with_conditions(events)

    def rows(
        self, raw: DataFrame, lookups: list[LookupCopy], places: SourcePlaces
    ) -> Iterator[tuple[str, DataFrame]]:
        """Yield the steps before the conditions, whose columns the conditions use."""
        self.made.expect([lookup.rows.schema for lookup in lookups])
        events = self._decoded(raw, places)
        yield "decode", events
        if self.pipeline.compute:
            events = self._with_computed(events)
            yield "compute", events
        for enrichment, lookup in zip(self.pipeline.enrich, lookups, strict=True):
            events = enrich(events, enrichment, lookup, event_time=self.time_column)
        if self.pipeline.enrich:
            yield "enrich", events
        if self.pipeline.transform is not None:
            events = self._transformed(events, self.pipeline.transform, places)
            yield "transform", events
        if self.predictors:
            events = self._with_predictions(events)
            yield "predict", events

    def _with_computed(self, events: DataFrame) -> DataFrame:
        """Add the computed columns, and why an event lacks one."""
        for names in levels_of(self.pipeline.compute):
            tried, columns = self.made.once(
                f"compute {names[0]}", partial(self._computed_level, events, names)
            )
            events = tried.add_to(events).withColumns(columns).drop(*tried.columns)
        return events

    def _computed_level(
        self, events: DataFrame, names: Sequence[str]
    ) -> tuple[TriedExpressions, dict[str, Column]]:
        expressions = self.pipeline.compute
        tried = TriedExpressions(events)
        columns = {name: tried.value(expressions[name]) for name in names}
        former = F.col(UNCOMPUTED) if UNCOMPUTED in events.columns else None
        failures = (
            tried.failure(expressions[name], f"The computed column {name}")
            for name in names
        )
        failure = _first([former, *failures])
        return tried, columns | ({} if failure is None else {UNCOMPUTED: failure})

    def _decoded(self, raw: DataFrame, places: SourcePlaces) -> DataFrame:
        if "headers" not in raw.columns:
            # Rows of files have none.
            raw = raw.withColumn("headers", F.lit(None).cast(HEADERS_TYPE))
        as_read = raw.select(
            *self.columns_as_read(places),
            *(F.col(name) for name in (ORIGINAL, MISFIT) if name in raw.columns),
        )
        events = with_fields(as_read, self.contracts)
        usable = usable_columns(self.kafka_columns(), places)
        return events.withColumns(usable) if usable else events

    def _transformed(
        self, events: DataFrame, transform: Transform, places: SourcePlaces
    ) -> DataFrame:
        fields = [field.name for field in self.contracts.fields]
        steps = columns_by_step(self.pipeline, fields)
        known = [*steps["decode"], *steps["compute"], *steps["enrich"]]
        of_kafka = usable_columns((KAFKA_TOPIC, *self.kafka_columns()), places)
        transformed = apply_transform(events, transform, known, of_kafka)
        added = [name for name in transformed.columns if name not in events.columns]
        check_columns(self.pipeline, self.contracts.fields, added)
        unknown = find_redaction_problems(self.pipeline, self.contracts, added)
        raise_if_any("Pipeline", unknown)
        return transformed

    @property
    def reads_headers(self) -> bool:
        """Whether the pipeline reads a part of the event from its record's headers."""
        return reads_headers(self.pipeline)

    def _of_headers(self) -> frozenset[str]:
        """Name the columns of headers in tables, which need no decoding."""
        return frozenset(
            stored_name(name)
            for name in self.kafka_columns()
            if name not in COPIED_COLUMNS
        )

    def _header_ids(self) -> list[Column]:
        identity = self.pipeline.source.event_id
        if not isinstance(identity, HeaderId):
            return []
        columns = [last_header(identity.header).cast("string").alias(EVENT_ID)]
        if identity.header == "ce_id":
            source = last_header("ce_source").cast("string")
            columns.append(source.alias(ID_SOURCE))
        return columns

    def _with_predictions(self, events: DataFrame) -> DataFrame:
        refusals = [f"{MODEL_ERROR}_{n}" for n in range(len(self.predictors))]
        for refusal, predictor in zip(refusals, self.predictors, strict=True):
            tried, inputs, failure = self.made.once(
                refusal, partial(_inputs, events, predictor)
            )
            events = tried.add_to(events)
            if failure is not None:
                known = [F.col(FAILED)] if FAILED in events.columns else []
                events = events.withColumn(FAILED, F.coalesce(*known, failure))
            events = predictor.add(events, inputs, refusal).drop(*tried.columns)
        refused = F.coalesce(*map(F.col, refusals))
        return events.withColumn(MODEL_ERROR, refused).drop(*refusals)

    def _conditions(self, tried: TriedExpressions) -> dict[str, Column]:
        """Say which outputs want an event, and the number of the filter that drops it.

        The numbers are positions in ``filter_conditions``; null if no filter drops it.
        """
        derived = {
            wanted_column(number): tried.is_true(output.where)
            for number, output in enumerate(self.pipeline.outputs)
            if output.where is not None
        }
        tests = []
        if self.pipeline.filter is not None:
            tests.append(tried.is_true(self.pipeline.filter))
        if derived and len(derived) == len(self.pipeline.outputs):
            tests.append(reduce(or_, derived.values()))
        if tests:
            numbered = (F.when(~test, F.lit(n)) for n, test in enumerate(tests))
            derived[FILTERED_BY] = F.coalesce(*numbered)
        return derived

    @property
    def filter_conditions(self) -> tuple[str, ...]:
        """The conditions that may keep an event from every output, as readable text."""
        wheres = [output.where for output in self.pipeline.outputs]
        of_outputs = [f"({where})" for where in wheres if where is not None]
        own = [] if self.pipeline.filter is None else [self.pipeline.filter]
        every = len(of_outputs) == len(wheres)
        return (*own, *([" OR ".join(of_outputs)] if every else []))

    def with_conditions(self, events: DataFrame) -> DataFrame:
        """Add the columns of conditions and aggregates to the last of ``rows``."""
        tried, derived = self.made.once("derived", partial(self._derived, events))
        if not derived:
            return events
        return tried.add_to(events).withColumns(derived).drop(*tried.columns)

    def _derived(self, events: DataFrame) -> tuple[TriedExpressions, dict[str, Column]]:
        tried = TriedExpressions(events)
        derived = self._conditions(tried)
        if self.pipeline.validate:
            derived[BROKEN_RULE] = self._broken_rule(tried)
        for number, output in enumerate(self.pipeline.outputs):
            if output.shard_by:
                ways = len(output.databases)
                derived[branch_column(number)] = choose_branch(output.shard_by, ways)
            for name, condition in output.sides.items():
                derived[side_column(number, name)] = tried.is_true(condition)
            for position, argument in _arguments(tried, output):
                derived[argument_column(number, position)] = argument
        return tried, derived | self._failures(tried, events)

    def _failures(
        self, tried: TriedExpressions, events: DataFrame
    ) -> dict[str, Column]:
        """Say why expressions fail on an event; the first failure counts.

        An expression that is not needed for an event cannot fail on it. If the filter
        is not true, the outputs' expressions are not needed; if an output does not want
        the event, its arguments are not.
        """
        rules = [
            tried.failure_of_condition(rule.condition, f"The rule {rule.reason_code}")
            for rule in self.pipeline.validate
        ]
        inputs = F.col(FAILED) if FAILED in events.columns else None
        behind = _first(self._failures_of_outputs(tried))
        if self.pipeline.filter is not None:
            if behind is not None:
                behind = F.when(tried.is_true(self.pipeline.filter), behind)
            of_filter = tried.failure_of_condition(self.pipeline.filter, "The filter")
            behind = _first([of_filter, behind])
        if behind is not None and self.predictors:
            # An event that a model refused is already dead, and lacks predictions.
            behind = F.when(F.col(MODEL_ERROR).isNull(), behind)
        first = _first([*rules, inputs, behind])
        return {} if first is None else {FAILED: first}

    def _failures_of_outputs(self, tried: TriedExpressions) -> Iterator[Column | None]:
        for output in self.pipeline.outputs:
            for at, condition in output.conditions.items():
                of = "".join(f"{side} of " for side in at[:-1])
                purpose = f"The condition of {of}{output.table}"
                yield tried.failure_of_condition(condition, purpose)
            yield self._failure_of_arguments(tried, output)

    def _failure_of_arguments(
        self, tried: TriedExpressions, output: Output
    ) -> Column | None:
        failure = _first(
            tried.failure(argument, f"{output.table}.{one.column}")
            for _, one, argument in output.arguments
        )
        if failure is None or output.where is None:
            return failure
        return F.when(tried.is_true(output.where), failure)

    def _broken_rule(self, tried: TriedExpressions) -> Column:
        """Name the first rule that is not true, unless an earlier rule fails."""
        code: Column = F.lit(None).cast("string")
        for rule in reversed(self.pipeline.validate):
            holds = tried.is_true(rule.condition)
            code = F.when(~holds, F.lit(rule.reason_code)).otherwise(code)
            has_failed = tried.has_failed(rule.condition)
            if has_failed is not None:
                code = F.when(~has_failed, code)
        return code


def _inputs(
    events: DataFrame, predictor: Predictor
) -> tuple[TriedExpressions, list[Column], Column | None]:
    """Return a model's input columns, and why an event lacks one."""
    tried = TriedExpressions(events)
    inputs = [tried.value(text, kind) for _, text, kind in predictor.inputs]
    failure = _first(
        tried.failure(text, f"The model's input {name}", kind)
        for name, text, kind in predictor.inputs
    )
    return tried, inputs, failure


def _arguments(tried: TriedExpressions, output: Output) -> Iterator[tuple[int, Column]]:
    """Yield the arguments of an output's aggregates, with their positions."""
    for position, aggregate, text in output.arguments:
        argument = tried.value(text)
        if aggregate.function is AggregateFunction.COUNT_IF:
            # Null if it is not true, so that counting the values counts the events.
            argument = F.when(argument, F.lit(True))  # noqa: FBT003
        yield position, argument


def _first(columns: Iterable[Column | None]) -> Column | None:
    """Return the first value among the columns that is not null."""
    found = [column for column in columns if column is not None]
    return F.coalesce(*found) if found else None
