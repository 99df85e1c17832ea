"""Builds the layout of a pipeline: its tables, from its columns in Spark."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import singledispatch

from pyspark.sql.types import StructField, StructType

from tallyweir.schemas.event_contracts import EventContracts
from tallyweir.schemas.pipeline.checks.durations import in_microseconds
from tallyweir.schemas.pipeline.columns import columns_by_step, named_kafka_columns
from tallyweir.schemas.pipeline.definition import Pipeline
from tallyweir.schemas.pipeline.definition_json import (
    definition_hash,
    pipeline_definition_json,
)
from tallyweir.schemas.pipeline.events.deduplicate import bucket_seconds
from tallyweir.schemas.pipeline.outputs.append import Append
from tallyweir.schemas.pipeline.outputs.join import Join
from tallyweir.schemas.pipeline.outputs.outbox import Outbox
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output
from tallyweir.schemas.pipeline.outputs.stateful import RESULT_TYPES, Stateful
from tallyweir.schemas.pipeline.outputs.window import Window
from tallyweir.schemas.schema_tree import travels_as
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.key_text import KEY_TYPES
from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.outbox_table import OutboxTable
from tallyweir.sinks.postgres.outputs.output import Output as Table
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import HOME, branch_name
from tallyweir.sinks.protocol.catalog_limits import FALSE_POSITIVES
from tallyweir.sinks.protocol.column_names import stored_name
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.spark_jobs.frame.stored_types import POSTGRES_TYPES
from tallyweir.spark_jobs.frame.transformed_events import added_columns
from tallyweir.spark_jobs.keyed.joined_events import as_stateful
from tallyweir.spark_jobs.tables.window_layout import window_table

#: The shards of a stateful output's keys; at most one task per shard works on them.
SHARDS = 16


def event_columns(
    pipeline: Pipeline, contracts: EventContracts, schema: StructType
) -> tuple[str, ...]:
    """Return all columns of an event, in the order of ``columns_by_step``."""
    fields = [one.name for one in contracts.fields]
    steps = columns_by_step(pipeline, fields)
    known = (*steps["decode"], *steps["compute"], *steps["enrich"])
    of_kafka = [one.name for one in named_kafka_columns(pipeline, fields)]
    others = [*known, *of_kafka, *map(stored_name, of_kafka)]
    return (*known, *added_columns(schema.names, others))


def read_columns(layout: PipelineLayout) -> frozenset[str]:
    """Name the columns of events that the outputs read themselves."""
    return frozenset(
        column.name for output in layout.outputs for column in output.read_columns
    )


def branches_of(output: Output) -> tuple[str, ...]:
    """Name the transactions that publish an output, in the order of its databases.

    An output in the home is published with the offsets, unless it is split over several
    transactions there.
    """
    if output.transactions > 1:
        (database,) = output.databases
        return tuple(branch_name(database, n) for n in range(output.transactions))
    return tuple(
        HOME if database == HOME else branch_name(database, 0)
        for database in output.databases
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredEvents:
    """The parts of a pipeline that describe an output's tables, besides the output.

    Attributes:
        pipeline: The pipeline.
        types: Postgres types of all columns of the event frame.
        texts: The columns among them whose values travel as text to a table of that
            type. Groups, keys, and results of functions and joins keep the text.
        events: The columns of an event.
    """

    pipeline: Pipeline
    types: Mapping[str, str]
    texts: Collection[str]
    events: tuple[str, ...]

    def columns(self, chosen: tuple[str, ...] | None) -> tuple[Column, ...]:
        """Return some columns of an event, or all."""
        return tuple(map(self.column, self.events if chosen is None else chosen))

    def column(self, name: str) -> Column:
        """Return one column of an event, under the name that tables give it."""
        kind, is_text = self.types[name], name in self.texts
        return Column(name=stored_name(name), postgres_type=kind, is_text=is_text)

    @property
    def kept_types(self) -> Mapping[str, str]:
        """The types of all columns where those that travel as text stay texts."""
        return {**self.types, **dict.fromkeys(self.texts, "text")}


@singledispatch
def output_table(output: Output, number: int, declared: DeclaredEvents) -> Table:
    """Describe an output to its databases; each kind registers its own function.

    Args:
        output: The output.
        number: Its position in the pipeline.
        declared: The parts of the pipeline that describe its tables.

    Raises:
        ConfigurationError: A column has a type that is not allowed where it is used.
    """
    del declared
    raise TypeError(f"output {number} has no table: {output!r}")


@output_table.register
def _(output: Append, number: int, declared: DeclaredEvents) -> Table:
    columns = declared.columns(output.columns)
    copied_by_tasks = declared.pipeline.guarantee is Guarantee.AT_LEAST_ONCE
    texts = [f"{one.name} ({one.postgres_type})" for one in columns if one.is_text]
    if copied_by_tasks and texts:
        raise ConfigurationError(
            "COPY_TYPE",
            saw=f"The output {output.table} has {', '.join(texts)}.",
            why="With at_least_once, tasks copy rows directly into the table, and "
            "these values travel as text.",
            fix="Leave them out by columns, or write guarantee: exactly_once.",
        )
    return AppendTable(
        table=output.table,
        staging_table=staging_table(number),
        event_columns=columns,
        branches=branches_of(output),
        copied_by_tasks=copied_by_tasks,
    )


@output_table.register
def _(output: Outbox, number: int, declared: DeclaredEvents) -> Table:
    return OutboxTable(
        table=output.table,
        staging_table=staging_table(number),
        topic=output.topic,
        fields=declared.columns(output.select),
        key=declared.column(output.key),
    )


@output_table.register(Stateful)
@output_table.register(Join)
def _(output: Output, number: int, declared: DeclaredEvents) -> Table:
    event_time, types = declared.pipeline.source.event_time, declared.kept_types
    stateful = as_stateful(output, number, event_time, types)
    chosen = declared.columns(stateful.select)
    key = tuple(
        Column(name=stored_name(name), postgres_type=types[name])
        for name in stateful.key
    )
    return keyed_table(stateful, staging_table(number), chosen, key)


@output_table.register
def _(output: Window, number: int, declared: DeclaredEvents) -> Table:
    branches = branches_of(output)
    types = declared.kept_types
    return window_table(number, output, staging_table(number), types, branches)


def keyed_table(
    output: Stateful,
    staging: str,
    event_columns: tuple[Column, ...],
    key: tuple[Column, ...],
) -> KeyedTable:
    """Describe a stateful output to its home database.

    Args:
        output: The output.
        staging: Staging table of its events.
        event_columns: Columns of events that its function gets.
        key: Columns of events that tell its keys apart.

    Raises:
        ConfigurationError: ``KEY_TYPE``: values of a key could have two spellings.
    """
    for one in key:
        if one.postgres_type not in KEY_TYPES:
            raise ConfigurationError(
                "KEY_TYPE",
                saw=f"The key column {one.name} of {output.table} is "
                f"{one.postgres_type}.",
                why="Keys are stored as text, so each key must have exactly one "
                "spelling.",
                fix="Convert it in a computed column to one of "
                f"{', '.join(sorted(KEY_TYPES))}.",
            )
    return KeyedTable(
        table=output.table,
        staging_table=staging,
        event_columns=event_columns,
        key=key,
        columns=tuple(
            Column(name=name, postgres_type=RESULT_TYPES[kind])
            for name, kind in output.columns.items()
        ),
    )


def staging_table(number: int) -> str:
    """Name the staging table of an output."""
    return f"output_{number}"


def build_layout(
    pipeline: Pipeline, contracts: EventContracts, schema: StructType
) -> PipelineLayout:
    """Describe a pipeline to its home database.

    Args:
        pipeline: The pipeline.
        contracts: The contracts that its events are read by.
        schema: The event frame's columns, as Spark's analyser sees them.

    Raises:
        ConfigurationError: A column has a type that is not allowed where it is used.
    """
    fields = [one.name for one in contracts.fields]
    read = (*contracts.fields, *named_kafka_columns(pipeline, fields))
    texts = {
        one.name: kind for one in read if (kind := travels_as(one.type)) is not None
    }
    declared = DeclaredEvents(
        pipeline=pipeline,
        types={field.name: _postgres_type(field) for field in schema.fields} | texts,
        texts=[name for name, kind in texts.items() if kind != "jsonb"],
        events=event_columns(pipeline, contracts, schema),
    )
    deduplicate = pipeline.deduplicate
    horizon = deduplicate.horizon if deduplicate else None
    rate = deduplicate.false_positives if deduplicate else FALSE_POSITIVES
    return PipelineLayout(
        pipeline=pipeline.name,
        definition=json.dumps(pipeline_definition_json(pipeline), sort_keys=True),
        definition_hash=definition_hash(pipeline),
        outputs=tuple(
            output_table(output, number, declared)
            for number, output in enumerate(pipeline.outputs)
        ),
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
    if contracts.format.described is not None:
        return ((0, contracts.format.described),)
    writers = sorted(contracts.writers.items())
    return tuple((schema_id, one.reference) for schema_id, one in writers)


def _postgres_type(column: StructField) -> str:
    kind = POSTGRES_TYPES.get(type(column.dataType))
    if kind is None:
        raise ConfigurationError(
            "TRANSFORM_TYPE",
            saw=f"The column {column.name} is {column.dataType.simpleString()}.",
            why="Postgres has no type for this Spark type.",
            fix="Cast it in the transform, to one of "
            f"{', '.join(sorted(set(POSTGRES_TYPES.values())))}.",
        )
    return kind
