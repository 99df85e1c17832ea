"""The parts of a pipeline that a replay compares: rows, state and ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from psycopg import sql

from sinks.postgres.outputs.append_table import AppendTable
from sinks.postgres.outputs.home_layout import HomeLayout
from sinks.postgres.outputs.keyed_table import KeyedTable
from sinks.postgres.outputs.outbox_table import OutboxTable
from sinks.postgres.outputs.window_table import WindowTable
from sinks.postgres.server.branch_names import HOME, database_of
from sinks.postgres.server.columns import Column, table_identifier
from sinks.postgres.server.naming import revisions_table
from sinks.postgres.staging.staging import EVENT_LOGS

_POSITION = ("kafka_topic", "kafka_partition", "kafka_offset")
#: The schema of Tallyweir's own tables.
_LEDGER = "tallyweir"
#: Window outputs count touched rows by task, so a group in two tasks counts twice.
_COUNTED_BY_TASK = ("rows", "revised")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPart:
    """Rows of one table, or of its shards, that a replay compares.

    Attributes:
        name: The name shown to people.
        table: The table's name in the pipeline's file, or in the ledger.
        output: The output that it belongs to; None for tables of the ledger.
        keys: Columns that identify a row; if empty, all of its values do.
        said: The other columns that are compared.
        databases: The databases that hold it.
        is_state: Whether it is the state of a window output: ``table`` is the output's.
        is_ledger: Whether it is a table of Tallyweir's, with the rows of all pipelines.
        has_positions: Whether each row belongs to the position of a record.
        needs_all: Whether a row may depend on batches before those that are replayed.
        only_waiting: Whether rows leave the table once another process has taken them.
        once: Whether the table may have several copies of a row, which count as one.
        written_in: The column with the batch that wrote a row, if there is one.
        lateness_us: For windows, how long after their end they may still change.
    """

    name: str
    table: str
    keys: tuple[str, ...]
    said: tuple[str, ...]
    output: str | None = None
    databases: tuple[str, ...] = (HOME,)
    is_state: bool = False
    is_ledger: bool = False
    has_positions: bool = False
    needs_all: bool = False
    only_waiting: bool = False
    once: bool = False
    written_in: str | None = None
    lateness_us: int | None = None

    @property
    def has_sequence(self) -> bool:
        return self.is_ledger and "sequence" in (*self.keys, *self.said)

    @property
    def identifier(self) -> sql.Identifier:
        if self.is_ledger:
            return sql.Identifier(_LEDGER, self.table)
        return table_identifier(self.table)


def parts_of(layout: HomeLayout) -> Iterator[ReplayPart]:
    """List every part that a replay of a pipeline compares, results first.

    Args:
        layout: The pipeline's layout, with the names in its file.
    """
    for output in layout.outputs:
        databases = tuple(dict.fromkeys(map(database_of, output.branches)))
        for part in _parts_of_output(output):
            yield replace(part, output=output.table, databases=databases)
    if any(isinstance(output, OutboxTable) for output in layout.outputs):
        yield _outbox()
    yield from _side_tables()
    if layout.keyed:
        yield from _keyed_state()
    yield from _ledger()


def _parts_of_output(
    output: AppendTable | WindowTable | OutboxTable | KeyedTable,
) -> Iterator[ReplayPart]:
    if isinstance(output, AppendTable):
        yield ReplayPart(
            name=output.table,
            table=output.table,
            keys=_POSITION,
            said=_names(output.event_columns),
            has_positions=True,
            once=output.copied_by_tasks,
        )
    elif isinstance(output, WindowTable):
        yield from _windows(output)
    elif isinstance(output, KeyedTable):
        keys = ("tallyweir_sequence", *_names(output.key), "tallyweir_ordinal")
        yield ReplayPart(
            name=output.table,
            table=output.table,
            keys=keys,
            said=_others(output.result_columns, keys),
            needs_all=True,
        )


def _windows(output: WindowTable) -> Iterator[ReplayPart]:
    keys = _names(output.result_keys)
    yield ReplayPart(
        name=output.table,
        table=output.table,
        keys=keys,
        said=_others(output.result_columns, keys),
        needs_all=True,
        lateness_us=output.allowed_lateness_us,
    )
    if output.keeps_revisions:
        keys = (*keys, "revised_in_sequence")
        yield ReplayPart(
            name=revisions_table(output.table),
            table=revisions_table(output.table),
            keys=keys,
            said=_others(output.result_columns, keys),
            needs_all=True,
            written_in="revised_in_sequence",
        )
    keys = _names(output.keys)
    yield ReplayPart(
        name=f"open windows of {output.table}",
        table=output.table,
        keys=keys,
        said=_others(output.staging_columns, keys),
        is_state=True,
        needs_all=True,
    )


def _outbox() -> ReplayPart:
    return ReplayPart(
        name="outbox",
        table="outbox",
        keys=("sequence", *_POSITION, "topic"),
        said=("event_id", "key", "value"),
        is_ledger=True,
        has_positions=True,
        only_waiting=True,
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


def _keyed_state() -> Iterator[ReplayPart]:
    key = ("output_table", "key", "name")
    yield ReplayPart(
        name="keyed_state",
        table="keyed_state",
        keys=(*key, "entry"),
        said=("value", "schema_version", "expires_at", "sequence"),
        is_ledger=True,
        needs_all=True,
    )
    yield ReplayPart(
        name="keyed_timer",
        table="keyed_timer",
        keys=key,
        said=("shard", "clock", "fires_at", "sequence"),
        is_ledger=True,
        needs_all=True,
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


def _others(columns: tuple[Column, ...], keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in _names(columns) if name not in keys)


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
        return sql.SQL(
            "CASE kept.kind WHEN 'window' THEN NULL ELSE {}::text END"
        ).format(column)
    return sql.SQL("{}::text").format(column)
