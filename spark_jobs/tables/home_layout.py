"""What a pipeline's tables look like in Postgres, from Spark's types of its columns."""

from __future__ import annotations

import json
from collections.abc import Mapping

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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from schemas.event_contracts import EventContracts
from sinks.postgres.outputs.append_table import AppendTable
from sinks.postgres.outputs.home_layout import HomeLayout
from sinks.postgres.outputs.outbox_table import OutboxTable
from sinks.postgres.outputs.output import Output as Table
from sinks.postgres.server.branch_names import HOME, branch_name
from sinks.postgres.server.columns import Column
from sinks.protocol.errors import ConfigurationError
from sinks.protocol.guarantee import Guarantee
from sinks.seen_ids.bloom_filter import FALSE_POSITIVES
from spark_jobs.frame.transformed_events import added_columns
from spark_jobs.keyed.joined_events import as_stateful
from spark_jobs.keyed.keyed_layout import keyed_table
from spark_jobs.pipeline.append import AppendOutput
from spark_jobs.pipeline.deduplicate import bucket_seconds
from spark_jobs.pipeline.definition import Output, Pipeline
from spark_jobs.pipeline.definition_json import (
    definition_hash,
    pipeline_definition_json,
)
from spark_jobs.pipeline.durations import in_microseconds
from spark_jobs.pipeline.join import JoinOutput
from spark_jobs.pipeline.outbox import OutboxOutput
from spark_jobs.pipeline.stateful import StatefulOutput
from spark_jobs.tables.window_layout import window_table

#: How many ways the seen IDs are split: at most so many tasks check them at once.
SHARDS = 16

#: A horizon is kept in about this many buckets; one of them is dropped at a time.

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


def event_columns(
    pipeline: Pipeline, contracts: EventContracts, schema: StructType
) -> tuple[str, ...]:
    """Return all columns of an event: fields, lookups, what is added or predicted."""
    looked_up = (name for one in pipeline.enrich for name in one.select)
    known = (*(field.name for field in contracts.fields), *looked_up)
    return (*known, *added_columns(schema.names, known))


def read_columns(layout: HomeLayout) -> frozenset[str]:
    """Name the columns of events that the outputs read by themselves."""
    return frozenset(
        column.name for output in layout.outputs for column in output.read_columns
    )


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
    pipeline: Pipeline, contracts: EventContracts, schema: StructType
) -> HomeLayout:
    """Describe a pipeline to its home database.

    Args:
        pipeline: The pipeline.
        contracts: What its events are read as.
        schema: The event frame's columns, as Spark's analyser sees them.

    Raises:
        ConfigurationError: A column is of a type that it cannot have where it is.
    """
    types = {field.name: _postgres_type(field) for field in schema.fields}
    everything = event_columns(pipeline, contracts, schema)
    outputs: list[Table] = []

    def columns(chosen: tuple[str, ...] | None) -> tuple[Column, ...]:
        return tuple(
            Column(name=name, postgres_type=types[name])
            for name in (everything if chosen is None else chosen)
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
                    copied_by_tasks=pipeline.guarantee is Guarantee.AT_LEAST_ONCE,
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
        elif isinstance(output, StatefulOutput | JoinOutput):
            stateful = as_stateful(output, number, pipeline.source.event_time, types)
            chosen = columns(stateful.select)
            outputs.append(keyed_table(stateful, staging, chosen, types))
        else:
            outputs.append(
                window_table(number, output, staging, types, branches_of(output))
            )
    deduplicate = pipeline.deduplicate
    horizon = deduplicate.horizon if deduplicate else None
    rate = deduplicate.false_positives if deduplicate else FALSE_POSITIVES
    return HomeLayout(
        pipeline=pipeline.name,
        definition=json.dumps(pipeline_definition_json(pipeline), sort_keys=True),
        definition_hash=definition_hash(pipeline),
        outputs=tuple(outputs),
        shards=SHARDS,
        bucket_seconds=bucket_seconds(horizon),
        watermark_delay_us=in_microseconds(pipeline.source.watermark_delay),
        idle_timeout_us=in_microseconds(pipeline.source.idle_timeout),
        horizon_us=None if horizon is None else in_microseconds(horizon),
        false_positives=rate,
        guarantee=pipeline.guarantee,
        writers=_writers(contracts),
    )


def _writers(contracts: EventContracts) -> tuple[tuple[int, str], ...]:
    writers = sorted(contracts.writers.items())
    return tuple((schema_id, one.reference) for schema_id, one in writers)


def _postgres_type(column: StructField) -> str:
    kind = _POSTGRES_TYPES.get(type(column.dataType))
    if kind is None:
        raise ConfigurationError(
            "TRANSFORM_TYPE",
            saw=f"The column {column.name} is {column.dataType.simpleString()}.",
            why="Postgres has no type that holds what Spark means by it.",
            fix="Cast it in the transform, to one of "
            f"{', '.join(sorted(set(_POSTGRES_TYPES.values())))}.",
        )
    return kind
