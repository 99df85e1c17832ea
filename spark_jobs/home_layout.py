"""What a pipeline's tables look like in Postgres, from Spark's types of its columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from schemas.contract import Contract
from sinks.postgres.columns import Column
from sinks.postgres.outputs import (
    HOME,
    AggregateFunction,
    AppendTable,
    HomeLayout,
    LatePolicy,
    OutboxTable,
    WindowAggregate,
    WindowTable,
    branch_name,
)
from sinks.protocol.errors import ConfigurationError
from spark_jobs.event_frame import argument_column
from spark_jobs.pipeline.aggregate import Aggregate
from spark_jobs.pipeline.aggregate import AggregateFunction as Declared
from spark_jobs.pipeline.definition import (
    AppendOutput,
    Late,
    Output,
    Pipeline,
    WindowOutput,
)
from spark_jobs.pipeline.definition_json import (
    definition_hash,
    pipeline_definition_json,
)
from spark_jobs.pipeline.outbox import OutboxOutput

#: How many ways the seen IDs are split: at most so many tasks check them at once.
SHARDS = 16

#: A horizon is kept in about this many buckets; one of them is dropped at a time.
_BUCKETS_PER_HORIZON = 8
_BUCKET_SECONDS_MIN = 60
_BUCKET_SECONDS_DEFAULT = 86_400

_POSTGRES_TYPES: Mapping[type[DataType], str] = {
    BinaryType: "bytea",
    BooleanType: "boolean",
    ByteType: "smallint",
    DateType: "date",
    DecimalType: "numeric",
    DoubleType: "double precision",
    FloatType: "real",
    IntegerType: "integer",
    LongType: "bigint",
    ShortType: "smallint",
    StringType: "text",
    TimestampNTZType: "timestamp without time zone",
    TimestampType: "timestamp with time zone",
    # Nested values are written as JSON.
    ArrayType: "jsonb",
    MapType: "jsonb",
    StructType: "jsonb",
}

#: As Postgres sums them: wide enough that a sum of integers never overflows.
_SUM_TYPES = {
    "smallint": "numeric",
    "integer": "numeric",
    "bigint": "numeric",
    "numeric": "numeric",
    "real": "double precision",
    "double precision": "double precision",
    "boolean": "bigint",
}
_SUM_RESULTS = {
    "smallint": "bigint",
    "integer": "bigint",
    "bigint": "numeric",
    "numeric": "numeric",
    "real": "double precision",
    "double precision": "double precision",
}
_ORDERED = frozenset(
    {
        *_SUM_RESULTS,
        "text",
        "date",
        "timestamp with time zone",
        "timestamp without time zone",
    }
)


def event_columns(
    pipeline: Pipeline, contract: Contract, chosen: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Return the columns that an output writes, in its order; all if none is chosen."""
    if chosen is not None:
        return chosen
    looked_up = (name for one in pipeline.enrich for name in one.select)
    return (*(field.name for field in contract.fields), *looked_up)


def branches_of(output: Output) -> tuple[str, ...]:
    """Name the transactions that publish an output, in the order of its databases.

    What goes to the home is published with the offsets, except an output that is
    split over several transactions there.
    """
    if isinstance(output, AppendOutput) and output.branches > 1:
        (database,) = output.databases
        return tuple(branch_name(database, n) for n in range(output.branches))
    return tuple(
        HOME if database == HOME else branch_name(database, 0)
        for database in output.databases
    )


def build_home_layout(
    pipeline: Pipeline, contract: Contract, schema: StructType
) -> HomeLayout:
    """Describe a pipeline to its home database.

    Args:
        pipeline: The pipeline.
        contract: What its events are read as.
        schema: The event frame's columns, as Spark's analyser sees them.

    Raises:
        ConfigurationError: ``AGGREGATE_TYPE``: an aggregate of a type that it is not
            defined for.
    """
    types = {field.name: _postgres_type(field.dataType) for field in schema.fields}
    outputs: list[AppendTable | WindowTable | OutboxTable] = []

    def columns(chosen: tuple[str, ...] | None) -> tuple[Column, ...]:
        return tuple(
            Column(name=name, postgres_type=types[name])
            for name in event_columns(pipeline, contract, chosen)
        )

    for number, output in enumerate(pipeline.outputs):
        staging = f"output_{number}"
        if isinstance(output, AppendOutput):
            outputs.append(
                AppendTable(
                    table=output.table,
                    staging_table=staging,
                    event_columns=columns(output.columns),
                    branches=branches_of(output),
                )
            )
        elif isinstance(output, OutboxOutput):
            outputs.append(
                OutboxTable(
                    table=output.table,
                    staging_table=staging,
                    topic=output.topic,
                    fields=columns(output.select),
                    key=Column(name=output.key, postgres_type=types[output.key]),
                )
            )
        else:
            outputs.append(_window_table(number, output, staging, types))
    horizon = pipeline.deduplicate.horizon if pipeline.deduplicate else None
    return HomeLayout(
        pipeline=pipeline.name,
        definition=json.dumps(pipeline_definition_json(pipeline), sort_keys=True),
        definition_hash=definition_hash(pipeline),
        outputs=tuple(outputs),
        shards=SHARDS,
        bucket_seconds=_bucket_seconds(horizon),
        watermark_delay_us=_microseconds(pipeline.source.watermark_delay),
        idle_timeout_us=_microseconds(pipeline.source.idle_timeout),
        horizon_us=None if horizon is None else _microseconds(horizon),
    )


def _window_table(
    number: int, output: WindowOutput, staging: str, types: Mapping[str, str]
) -> WindowTable:
    return WindowTable(
        table=output.table,
        staging_table=staging,
        size_us=_microseconds(output.size),
        by=tuple(Column(name=name, postgres_type=types[name]) for name in output.by),
        aggregates=tuple(
            _window_aggregate(
                output,
                aggregate,
                position,
                types.get(argument_column(number, position)),
            )
            for position, aggregate in enumerate(output.aggregates)
        ),
        # Only a row that may be revised stays open after the watermark has passed.
        allowed_lateness_us=_microseconds(output.allowed_lateness)
        if output.late is Late.REVISE
        else 0,
        late=LatePolicy(output.late.value),
        branches=branches_of(output),
    )


def _window_aggregate(
    output: WindowOutput,
    aggregate: Aggregate,
    position: int,
    argument_type: str | None,
) -> WindowAggregate:
    """Choose the types of an aggregate's result and partials."""
    partial_type = "bigint"
    result_type = "bigint"
    match aggregate.function:
        case Declared.COUNT:
            function = AggregateFunction.COUNT
        case Declared.COUNT_IF:
            function = AggregateFunction.COUNT
            _require(output, aggregate, argument_type, frozenset({"boolean"}))
        case Declared.SUM | Declared.AVG:
            kind = _require(output, aggregate, argument_type, frozenset(_SUM_RESULTS))
            partial_type = _SUM_TYPES[kind]
            if aggregate.function is Declared.SUM:
                function = AggregateFunction.SUM
                result_type = _SUM_RESULTS[kind]
            else:
                function = AggregateFunction.AVG
                result_type = "numeric" if kind == "numeric" else "double precision"
        case Declared.MIN | Declared.MAX:
            result_type = _require(output, aggregate, argument_type, _ORDERED)
            partial_type = result_type
            function = AggregateFunction[aggregate.function.name]
    return WindowAggregate(
        column=Column(name=aggregate.column, postgres_type=result_type),
        function=function,
        number=position,
        partial_type=partial_type,
    )


def _require(
    output: WindowOutput,
    aggregate: Aggregate,
    argument_type: str | None,
    allowed: frozenset[str],
) -> str:
    if argument_type in allowed:
        assert argument_type is not None
        return argument_type
    raise ConfigurationError(
        "AGGREGATE_TYPE",
        saw=f"{output.table}.{aggregate.column} is {aggregate.function}"
        f"({aggregate.argument}), and its argument is {argument_type}.",
        why=f"{aggregate.function} is defined for {', '.join(sorted(allowed))}.",
        fix="Cast the argument, or choose another aggregate.",
    )


def _postgres_type(kind: DataType) -> str:
    return _POSTGRES_TYPES[type(kind)]


def _bucket_seconds(horizon: timedelta | None) -> int:
    if horizon is None:
        return _BUCKET_SECONDS_DEFAULT
    seconds = int(horizon.total_seconds()) // _BUCKETS_PER_HORIZON
    return max(seconds, _BUCKET_SECONDS_MIN)


def _microseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)
