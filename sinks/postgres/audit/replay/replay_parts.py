"""The parts of a pipeline that a replay compares: rows, state and ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter

from psycopg import sql

from tallyweir.sinks.postgres.ledger.output_kinds import KINDS
from tallyweir.sinks.postgres.outputs.output import Output, ReplayPart
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import database_of
from tallyweir.sinks.postgres.staging.staging_tables import EVENT_LOGS

_POSITION = ("kafka_topic", "kafka_partition", "kafka_offset")
#: Window outputs count touched rows by task, so a group in two tasks counts twice.
_COUNTED_BY_TASK = ("rows", "revised")


def parts_of(layout: PipelineLayout) -> Iterator[ReplayPart]:
    """List every part that a replay of a pipeline compares, results first.

    Args:
        layout: The pipeline's layout, with the names in its file.
    """
    parts = (part for output in layout.outputs for part in _parts_of_output(output))
    # Several outputs may keep rows in one table of the ledger, which comes once.
    yield from sorted(dict.fromkeys(parts), key=attrgetter("is_ledger"))
    yield from _side_tables()
    yield from _ledger()


def _parts_of_output(output: Output) -> Iterator[ReplayPart]:
    databases = tuple(dict.fromkeys(map(database_of, output.branches)))
    for part in output.replay_parts():
        yield (
            part
            if part.is_ledger
            else replace(part, output=output.table, databases=databases)
        )


def _side_tables() -> Iterator[ReplayPart]:
    for table, columns in EVENT_LOGS.items():
        # Runs of remembered IDs are merged at arbitrary times, so they cannot agree.
        if table == "seen_id_run":
            continue
        names = _names(columns)
        keys = (
            *(n for n in names if n == "output_table" or n in _POSITION),
            "sequence",
        )
        yield ReplayPart(
            name=table,
            table=table,
            keys=keys,
            said=tuple(name for name in names if name not in keys),
            is_ledger=True,
            has_positions=True,
        )
    yield ReplayPart(
        name="replaced_row",
        table="replaced_row",
        keys=("output_table", *_POSITION, "sequence"),
        said=("event_id",),
        is_ledger=True,
        has_positions=True,
    )


def _ledger() -> Iterator[ReplayPart]:
    counts = ("read", "committed", "duplicate", "dead", "late", "expired", "filtered")
    yield ReplayPart(
        name="batch",
        table="batch",
        keys=("sequence",),
        said=("watermark_before", "watermark_after", "planned_at", "checksum"),
        is_ledger=True,
    )
    yield ReplayPart(
        name="batch_partition",
        table="batch_partition",
        keys=("sequence", "topic", "partition"),
        said=("from_offset", "until_offset", *counts),
        is_ledger=True,
    )
    yield ReplayPart(
        name="batch_output",
        table="batch_output",
        keys=("sequence", "output_table"),
        said=("kind", "events", "rows", "late", "late_kept", "revised", "checksum"),
        is_ledger=True,
    )
    yield ReplayPart(
        name="partition_progress",
        table="partition_progress",
        keys=("topic", "partition"),
        said=("topic_id", "event_time_max", "active_at"),
        is_ledger=True,
        needs_all=True,
    )


def _names(columns: tuple[Column, ...]) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def as_json(
    part: ReplayPart, names: tuple[str, ...], own: Mapping[str, str]
) -> sql.Composed:
    """Return columns as one JSON object of texts; session settings fix their format.

    Args:
        part: The part that has the columns.
        names: The columns' names.
        own: The pipeline's names of its output tables, by the names in its file.
    """
    columns = [
        sql.SQL("{} AS {}").format(_as_text(part, name, own), sql.Identifier(name))
        for name in names
    ]
    # A function takes at most a hundred arguments, but a row may have more columns.
    return sql.SQL("(SELECT row_to_json(named) FROM (SELECT {}) AS named)").format(
        sql.SQL(", ").join(columns)
    )


def _as_text(part: ReplayPart, name: str, own: Mapping[str, str]) -> sql.Composable:
    column = sql.SQL("kept.{}").format(sql.Identifier(name))
    if part.is_ledger and name == "output_table":
        # A fork uses other names for its output tables than its file does.
        for written, table in own.items():
            column = sql.SQL(
                "CASE kept.output_table WHEN {} THEN {} ELSE {} END"
            ).format(sql.Literal(table), sql.Literal(written), column)
    if part.table == "batch_output" and name in _COUNTED_BY_TASK:
        counted = [kind.name for kind in KINDS.values() if kind.is_counted_by_task]
        return sql.SQL(
            "CASE WHEN kept.kind = ANY ({}) THEN NULL ELSE {}::text END"
        ).format(sql.Literal(counted), column)
    return sql.SQL("{}::text").format(column)
