"""Checks that the columns that a pipeline names exist in its contracts, and fit.

Columns appear in order: the event's fields, the columns of each enrichment, of a
transform, and of each model. Rules see only the fields, because an invalid event is a
dead letter before it is enriched. Each enrichment sees the columns before it. Filter
and outputs see all columns, but only fields spread an output over databases. Rules,
filters, conditions and aggregates may also read the event's topic. The columns of a
transform are known only after Spark has seen it, so until then nothing after it is
checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Protocol

from schemas.contract import ContractField
from schemas.errors import ContractError
from schemas.schema_tree import NESTED_TYPES
from spark_jobs.pipeline.append import AppendOutput
from spark_jobs.pipeline.definition import Output, Pipeline, Transform
from spark_jobs.pipeline.enrichment import KAFKA_KEY, Enrichment
from spark_jobs.pipeline.expressions import find_mistyped, find_unknown_columns
from spark_jobs.pipeline.join import JoinOutput
from spark_jobs.pipeline.monitoring import Monitoring
from spark_jobs.pipeline.names import (
    KAFKA_TOPIC,
    check_distinct,
    check_output_column,
)
from spark_jobs.pipeline.outbox import OutboxOutput
from spark_jobs.pipeline.prediction import Prediction
from spark_jobs.pipeline.problems import Path, Problem, StandIn, raise_if_any, suggest
from spark_jobs.pipeline.rule import Rule
from spark_jobs.pipeline.source import Source
from spark_jobs.pipeline.stateful import StatefulOutput
from spark_jobs.pipeline.window import WindowOutput

# Types whose every value has one spelling in bytes, which a fingerprint needs.
_ID_TYPES = frozenset({"string", "int", "long", "uuid", "bytes"})
# Types of instants. A local timestamp has no zone, so it cannot be ordered.
_TIME_TYPES = frozenset({"timestamp-millis", "timestamp-micros"})


class PipelineParts(Protocol):
    """The parts of a pipeline that define and read columns."""

    @property
    def source(self) -> Source: ...
    @property
    def validate(self) -> Sequence[Rule]: ...
    @property
    def enrich(self) -> Sequence[Enrichment]: ...
    @property
    def transform(self) -> Transform | None: ...
    @property
    def predict(self) -> Sequence[Prediction]: ...
    @property
    def filter(self) -> str | None: ...
    @property
    def monitor(self) -> Monitoring: ...
    @property
    def outputs(self) -> Sequence[Output]: ...


def check_columns(
    pipeline: Pipeline,
    fields: Sequence[ContractField],
    added: Sequence[str] | None = None,
) -> None:
    """Check that a pipeline's contracts have its columns.

    Args:
        pipeline: The pipeline.
        fields: Fields of its contracts.
        added: The columns that its transform adds, once they are known.

    Raises:
        PipelineError: A column is unknown or has an unfit type, or two columns would
            have one name; the error has all these problems.
    """
    raise_if_any("Pipeline", find_column_problems(pipeline, fields, added))


def find_column_problems(
    pipeline: PipelineParts,
    fields: Sequence[ContractField],
    added: Sequence[str] | None = None,
) -> Iterator[Problem]:
    """Find the problems that ``check_columns`` raises."""
    known = [field.name for field in fields]
    yield from check_distinct(known, "fields", ("source", "schema"))
    types = {field.name: field.type for field in fields}
    for problem in _check_source(pipeline.source, fields):
        yield problem.under("source")
    for rule in pipeline.validate:
        for problem in _check_expression(rule.condition, known, types):
            yield problem.under("validate", rule.reason_code)
    for index, enrichment in enumerate(pipeline.enrich):
        for problem in _check_enrichment(enrichment, known):
            yield problem.under("enrich", index)
        known = [*known, *enrichment.select]
    if pipeline.transform is not None:
        if added is None:
            return
        known = [*known, *added]
    for index, prediction in enumerate(pipeline.predict):
        for problem in _check_prediction(prediction, known):
            yield problem.under("predict", index)
        known = [*known, *prediction.new_columns]
    yield from _check_results(pipeline, fields, known)


def _check_results(
    pipeline: PipelineParts, fields: Sequence[ContractField], known: list[str]
) -> Iterator[Problem]:
    types = {field.name: field.type for field in fields}
    for problem in _check_expression(pipeline.filter, known, types):
        yield problem.under("filter")
    for index, output in enumerate(pipeline.outputs):
        found = chain(
            _check_output(output, known, types),
            _check_where(output, known, types),
            _check_shard_by(output, fields),
            _check_by(output, fields),
            _check_key(output, fields, known),
        )
        for problem in found:
            yield problem.under("outputs", index)


def find_lookup_problems(
    enrichment: Enrichment, fields: Sequence[ContractField]
) -> Iterator[Problem]:
    """Find columns of a lookup topic that its contract does not have.

    Args:
        enrichment: An enrichment that looks up a topic.
        fields: Fields of the contract of its values.
    """
    known = [*(field.name for field in fields), KAFKA_KEY]
    for key, pairs in (("on", enrichment.on), ("select", enrichment.select)):
        for column, lookup in pairs.items():
            yield from _check_known(lookup, known, (key, column))
    if enrichment.as_of is None:
        return
    as_of = enrichment.as_of
    for key, lookup in (("from", as_of.valid_from), ("until", as_of.valid_until)):
        yield from _check_known(lookup, known, ("as_of", key))


def contract_problems(error: ContractError) -> Iterator[Problem]:
    """Turn the faults of a contract into problems of the pipeline that names it."""
    for one in error.faults:
        yield Problem(code=one.code, saw=one.saw, why=one.why, fix=one.fix)


def _check_source(source: Source, fields: Sequence[ContractField]) -> Iterator[Problem]:
    types = {field.name: field.type for field in fields}
    lacking = {field.name: field.lacking for field in fields}
    wanted = [("event_time", source.event_time, _TIME_TYPES, "an instant")]
    if isinstance(source.event_id, str):
        wanted.append(("event_id", source.event_id, _ID_TYPES, "an ID"))
    for key, column, fit, purpose in wanted:
        if isinstance(column, StandIn):
            continue
        if column not in types:
            yield from _check_known(column, types, (key,))
        elif types[column] not in fit:
            yield Problem(
                code="PIPELINE_COLUMN_TYPE",
                at=(key,),
                saw=f"The field {column!r} is of type {types[column]}.",
                why=f"To be {purpose} it must be one of {', '.join(sorted(fit))}.",
                fix="Choose another field, or change the contract.",
            )
        elif lacking[column]:
            yield Problem(
                code="PIPELINE_UNKNOWN_COLUMN",
                at=(key,),
                saw=f"There is no field {column!r} in {', '.join(lacking[column])}.",
                why="The events of every contract of the pipeline need it.",
                fix="Choose a field that all of them have, or make a version of the "
                "contract in which it has this name, and its own as an alias.",
            )


def _check_enrichment(enrichment: Enrichment, known: list[str]) -> Iterator[Problem]:
    for column in enrichment.on:
        yield from _check_known(column, known, ("on", column))
    for column in enrichment.select:
        yield from _check_new(column, known, ("select", column))


def _check_prediction(prediction: Prediction, known: list[str]) -> Iterator[Problem]:
    for name, expressions in prediction.inputs.items():
        for expression in expressions:
            for problem in find_unknown_columns(expression, known):
                yield problem.under("inputs", name)
    for column in prediction.new_columns:
        yield from _check_new(column, known, ("columns", column))


def _check_output(
    output: Output, known: list[str], types: Mapping[str, str]
) -> Iterator[Problem]:
    match output:
        case AppendOutput(columns=None) | OutboxOutput(select=None):
            for column in known:
                yield from check_output_column(column, ())
        case AppendOutput(columns=columns):
            yield from _check_all_known(columns, known, "columns")
        case OutboxOutput(select=select):
            yield from _check_all_known(select, known, "select")
        case StatefulOutput():
            yield from _check_all_known(output.key, known, "key")
            yield from _check_all_known(output.select, known, "select")
        case JoinOutput():
            yield from _check_join(output, known)
        case WindowOutput():
            yield from _check_window(output, known, types)


def _check_join(output: JoinOutput, known: list[str]) -> Iterator[Problem]:
    yield from _check_all_known(output.on, known, "on")
    for name, side in output.sides.items():
        for column, of_event in side.select.items():
            yield from _check_known(of_event, known, (name, "select", column))


def _check_window(
    output: WindowOutput, known: list[str], types: Mapping[str, str]
) -> Iterator[Problem]:
    yield from _check_all_known(output.by, known, "by")
    for aggregate in output.aggregates:
        if aggregate.argument is not None:
            for problem in _check_expression(aggregate.argument, known, types):
                yield problem.under("aggregates", aggregate.column)


def _check_where(
    output: Output, known: list[str], types: Mapping[str, str]
) -> Iterator[Problem]:
    conditions: dict[Path, str | None] = {("where",): output.where}
    if isinstance(output, JoinOutput):
        conditions = {(name, "where"): one.where for name, one in output.sides.items()}
    for at, condition in conditions.items():
        for problem in _check_expression(condition, known, types):
            yield problem.under(*at)


def _check_shard_by(
    output: Output, fields: Sequence[ContractField]
) -> Iterator[Problem]:
    """Find columns whose value may not always choose the same database.

    A looked-up column may change, in value and in type, whenever its table does.
    """
    types = {field.name: field.type for field in fields}
    for index, column in enumerate(output.shard_by):
        at: Path = ("shard_by", index)
        if column not in types:
            yield Problem(
                code="PIPELINE_UNKNOWN_COLUMN",
                at=at,
                saw=f"The event has no field {column!r}.",
                why="Only a field of the event gives a row one place for ever.",
                fix=suggest(column, types),
            )
        elif types[column] in NESTED_TYPES:
            yield Problem(
                code="PIPELINE_COLUMN_TYPE",
                at=at,
                saw=f"The field {column!r} is of type {types[column]}.",
                why="Rows are spread by simple values only.",
                fix="Choose another field.",
            )


def _check_by(output: Output, fields: Sequence[ContractField]) -> Iterator[Problem]:
    """Find fields that cannot make groups; Spark checks other columns."""
    if not isinstance(output, WindowOutput):
        return
    types = {field.name: field.type for field in fields}
    for index, column in enumerate(output.by):
        if types.get(column) in NESTED_TYPES:
            yield Problem(
                code="PIPELINE_COLUMN_TYPE",
                at=("by", index),
                saw=f"The field {column!r} is of type {types[column]}.",
                why="Groups are made by simple values only.",
                fix="Choose another field, or make a simple column of it in a "
                "transform.",
            )


def _check_key(
    output: Output, fields: Sequence[ContractField], known: list[str]
) -> Iterator[Problem]:
    if not isinstance(output, OutboxOutput) or isinstance(output.key, StandIn):
        return
    yield from _check_known(output.key, known, ("key",))
    types = {field.name: field.type for field in fields}
    if types.get(output.key) in NESTED_TYPES:
        yield Problem(
            code="PIPELINE_COLUMN_TYPE",
            at=("key",),
            saw=f"The field {output.key!r} is of type {types[output.key]}.",
            why="A key is one simple value.",
            fix="Choose another field.",
        )


def _check_expression(
    text: str | None, known: list[str], types: Mapping[str, str]
) -> Iterator[Problem]:
    if text is not None:
        yield from find_unknown_columns(text, [*known, KAFKA_TOPIC])
        yield from find_mistyped(text, types)


def _check_all_known(
    columns: Sequence[str] | None, known: Iterable[str], key: str
) -> Iterator[Problem]:
    for index, column in enumerate(columns or ()):
        yield from _check_known(column, known, (key, index))


def _check_new(column: str, known: Iterable[str], at: Path) -> Iterator[Problem]:
    if column.casefold() in {name.casefold() for name in known}:
        yield Problem(
            code="PIPELINE_DUPLICATE_NAME",
            at=at,
            saw=f"A column {column!r} would be made.",
            why="The events already have one of that name; case does not count.",
            fix="Choose another name.",
        )


def _check_known(column: str, known: Iterable[str], at: Path) -> Iterator[Problem]:
    if column not in known and not isinstance(column, StandIn):
        yield Problem(
            code="PIPELINE_UNKNOWN_COLUMN",
            at=at,
            saw=f"There is no column {column!r}.",
            why="The events do not have it.",
            fix=suggest(column, known),
        )
