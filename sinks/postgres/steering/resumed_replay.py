"""Lets a replay begin where a snapshot was taken, with the state of that moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

from tallyweir.sinks.postgres.audit.replay.replay_committed import Committed
from tallyweir.sinks.postgres.audit.replay.replay_scratch import ReplayScratch
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import columns_of, table_identifier
from tallyweir.sinks.postgres.server.naming import HOME, state_table
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.steering.snapshot import (
    KEPT_BY_PIPELINE,
    Snapshot,
    find_snapshot,
    window_copies,
)

_SQL = load_statements("tallyweir.sinks.postgres.steering", "snapshot.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """The source and the target of a copy; all columns if none are named."""

    source: sql.Identifier
    target: sql.Identifier
    columns: tuple[str, ...] = ()


def snapshot_named(committed: Committed, name: str) -> Snapshot:
    """Return a snapshot of the pipeline, as of the moment that was read.

    Raises:
        ConfigurationError: ``SNAPSHOT_UNKNOWN``.
    """
    home = committed.side.databases[HOME]
    return find_snapshot(home, committed.audited.name, name)


def resume_from(
    snapshot: Snapshot,
    committed: Committed,
    scratch: ReplayScratch,
    layout: PipelineLayout,
) -> None:
    """Copy what a snapshot keeps to the scratch home, which has the tables already.

    Args:
        snapshot: A snapshot of the pipeline.
        committed: The pipeline at the moment that was read.
        scratch: The scratch databases to copy to.
        layout: The layout of the replay's tables, with the names in the pipeline's
            file.
    """
    home = committed.side.databases[HOME]
    for copy in _copies(snapshot, committed, scratch, layout):
        columns = copy.columns or columns_of(home, copy.source)
        listed = sql.SQL(", ").join(map(sql.Identifier, columns))
        read = _SQL["read_copy"].format(columns=listed, copy=copy.source)
        write = _SQL["write_copy"].format(columns=listed, target=copy.target)
        with (
            home.cursor().copy(read) as source,
            scratch.home.cursor().copy(write) as target,
        ):
            for block in source:
                target.write(block)


def _copies(
    snapshot: Snapshot,
    committed: Committed,
    scratch: ReplayScratch,
    layout: PipelineLayout,
) -> Iterator[_Copy]:
    for table in KEPT_BY_PIPELINE:
        yield _Copy(
            source=snapshot.copy(table), target=sql.Identifier("tallyweir", table)
        )
    written = {table: name for name, table in committed.side.own.items()}
    outputs = {one.table: one for one in layout.outputs}
    number = scratch.side().number
    home = committed.side.databases[HOME]
    for window in window_copies(
        committed.audited, snapshot.definition, snapshot.watermark
    ):
        if not columns_of(home, snapshot.copy(window.state_copy)):
            # The output had no tables yet.
            continue
        output = outputs[written.get(window.table, window.table)]
        yield _Copy(
            source=snapshot.copy(window.state_copy),
            target=state_table(number, output.table),
            columns=tuple(column.name for column in output.staging_columns),
        )
        yield _Copy(
            source=snapshot.copy(window.rows_copy),
            target=table_identifier(output.table),
            columns=tuple(column.name for column in output.tables[output.table]),
        )
