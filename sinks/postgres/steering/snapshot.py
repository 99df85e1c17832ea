"""Keeps a pipeline's state between two batches, so that a restore can go back to it.

Most rows that a batch leaves tell their batch, by its sequence or by a position, and a
restore finds them by that. A snapshot copies what batches change in place: positions,
open windows and those of their rows that can still change, keyed state and timers.

A batch is one commit, so any moment that a snapshot of the database shows lies between
two batches. No batch waits and no driver is fenced. Acts do wait that look for
snapshots or change what this one copies, because it is invisible until its commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection, Rollback, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
    fetch_pipeline,
    read_pipeline,
    repeatable_read,
)
from tallyweir.sinks.postgres.ledger.output_kinds import kind_of
from tallyweir.sinks.postgres.server.columns import columns_of, table_identifier
from tallyweir.sinks.postgres.server.naming import HOME, state_table
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.steering.act import check_reason
from tallyweir.sinks.postgres.tables.foreign_code import hold_tables, not_there
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.steering", "snapshot.sql")

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")

#: Own tables of which a snapshot copies the pipeline's rows.
KEPT_BY_PIPELINE = ("partition_progress", "keyed_state", "keyed_timer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot that can be restored.

    Attributes:
        sequence: The last batch before it.
        definition: The pipeline's definition at that time.
        epoch: The newest claim before it.
        move: The last move of a position before it; 0 if there was none.
        bytes: Size of its copies, without the IDs that are kept for it.
    """

    snapshot_number: int
    name: str
    reason: str
    sequence: int
    watermark: datetime | None
    definition: Mapping[str, Any]
    epoch: int
    move: int
    taken_by: str
    taken_at: datetime
    bytes: int

    def copy(self, table: str) -> sql.Identifier:
        """Name the snapshot's copy of a table."""
        return sql.Identifier(_schema_name(self.snapshot_number), table)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCopies:
    """A window output, and where a snapshot keeps its part.

    Attributes:
        unsettled: A condition on rows that could still change, or came later.
    """

    table: str
    state: sql.Identifier
    state_copy: str
    rows_copy: str
    unsettled: sql.Composed

    @property
    def target(self) -> sql.Identifier:
        return table_identifier(self.table)


def take_snapshot(
    connection: Connection[TupleRow],
    pipeline: str,
    name: str,
    *,
    reason: str,
    dry_run: bool = False,
) -> Snapshot:
    """Keep the state of a pipeline as it is between two batches.

    As long as the snapshot exists, no bucket of seen IDs that it needs is dropped. A
    driver may work meanwhile. A restore, an erasure, an update, a switch or a discard
    runs before or after it, never at the same time.

    Args:
        connection: To the home, outside a transaction.
        pipeline: The pipeline's name.
        name: The snapshot's name; small letters, digits, ``-`` and ``_``.
        reason: Why, for people who ask later.
        dry_run: Do all of it, and roll it back.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``REASON_MISSING``,
            ``SNAPSHOT_NAME``, ``SNAPSHOT_EXISTS``, ``NOT_AT_HOME``, or
            ``TABLE_LOST``: a window output has only one of its two tables.
        RetryableError: The server went away.

    Crash:
        Before the COMMIT there is nothing; after it the snapshot is whole.
    """
    check_reason(reason)
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            "SNAPSHOT_NAME",
            saw=f"{name!r} is not a valid snapshot name.",
            why="A name is 1 to 40 lower-case letters, digits, '-' and '_'.",
            fix="Choose another name.",
        )
    with translated("taking a snapshot"):
        with connection.transaction():
            fetch_pipeline(connection, pipeline)
        with _undisturbed(connection, pipeline), repeatable_read(connection):
            audited = read_pipeline(connection, pipeline)
            hold_tables(connection, audited)
            check_at_home(audited)
            values = {
                "pipeline": pipeline,
                "name": name,
                "reason": reason,
                "horizon_s": audited.horizon_s,
            }
            made = fetch(connection, _SQL["insert_snapshot"], **values)
            if not made:
                raise ConfigurationError(
                    "SNAPSHOT_EXISTS",
                    saw=f"Pipeline {pipeline} already has a snapshot {name}.",
                    why="The new snapshot would overwrite it.",
                    fix="Choose another name, or drop that one: tallyweir snapshot "
                    f"drop {pipeline} {name}.",
                )
            snapshot = find_snapshot(connection, pipeline, name)
            _copy(connection, audited, snapshot)
            if dry_run:
                raise Rollback
    return snapshot


def check_at_home(pipeline: AuditedPipeline) -> None:
    """Refuse a pipeline that has a part in another database.

    Raises:
        ConfigurationError: ``NOT_AT_HOME``.
    """
    away = [one.table for one in pipeline.outputs if one.databases != (HOME,)]
    if away:
        raise ConfigurationError(
            "NOT_AT_HOME",
            saw=f"Pipeline {pipeline.name} writes {', '.join(away)} in another "
            "database.",
            why="Snapshots, restores and offsets accept-topic each use one transaction "
            "of the home database, which reaches no other.",
            fix="Restore all of its databases from their backups to one moment, and "
            f"run tallyweir repair {pipeline.name}.",
        )


def list_snapshots(
    connection: Connection[TupleRow], pipeline: str
) -> tuple[Snapshot, ...]:
    """List a pipeline's snapshots, the oldest batch first.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    with translated("listing snapshots"), connection.transaction():
        fetch_pipeline(connection, pipeline)
        return read_snapshots(connection, pipeline)


def read_snapshots(
    connection: Connection[TupleRow], pipeline: str
) -> tuple[Snapshot, ...]:
    """List a pipeline's snapshots in the caller's transaction."""
    rows = fetch(connection, _SQL["list_snapshots"], pipeline=pipeline)
    return tuple(Snapshot(**row) for row in rows)


def find_snapshot(
    connection: Connection[TupleRow], pipeline: str, name: str
) -> Snapshot:
    """Return a snapshot, in the caller's transaction.

    Raises:
        ConfigurationError: ``SNAPSHOT_UNKNOWN``.
    """
    snapshots = {one.name: one for one in read_snapshots(connection, pipeline)}
    if name not in snapshots:
        raise ConfigurationError(
            "SNAPSHOT_UNKNOWN",
            saw=f"Pipeline {pipeline} has no snapshot {name!r}; it has "
            f"{', '.join(snapshots) or 'none at all'}.",
            why="A restore also drops the snapshots that were taken after the "
            "restored one.",
            fix="Correct the name.",
        )
    return snapshots[name]


def drop_snapshot(
    connection: Connection[TupleRow],
    pipeline: str,
    name: str,
    *,
    dry_run: bool = False,
) -> Snapshot:
    """Forget a snapshot; the IDs that were kept for it go when a driver starts next.

    A dry run does the same, and rolls it back.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN`` or ``SNAPSHOT_UNKNOWN``.
        RetryableError: The server went away.

    Crash:
        Before the COMMIT the snapshot is there; after it the snapshot is gone.
    """
    with translated("dropping a snapshot"), connection.transaction():
        fetch_pipeline(connection, pipeline)
        snapshot = find_snapshot(connection, pipeline, name)
        delete_snapshot(connection, snapshot)
        if dry_run:
            raise Rollback
    return snapshot


def delete_snapshot(connection: Connection[TupleRow], snapshot: Snapshot) -> None:
    """Drop a snapshot in the caller's transaction."""
    connection.execute(
        _SQL["delete_snapshot"], {"snapshot_number": snapshot.snapshot_number}
    )
    connection.execute(
        _SQL["drop_schema"].format(
            schema=sql.Identifier(_schema_name(snapshot.snapshot_number))
        )
    )


def is_held(connection: Connection[TupleRow], table: sql.Identifier) -> bool:
    """Tell whether a table exists and ``hold_tables`` has locked it."""
    quoted = table.as_string(connection)
    return bool(fetch_one(connection, _SQL["is_held"], table=quoted)["is_held"])


def held_windows(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    definition: Mapping[str, Any],
    watermark: datetime | None,
) -> Iterator[WindowCopies]:
    """Name the tables of each window output whose tables ``hold_tables`` has locked.

    Raises:
        ConfigurationError: ``TABLE_LOST``: an output has only one of its two tables,
            so its rows would not agree with its state.
    """
    for window in window_copies(pipeline, definition, watermark):
        has_rows = is_held(connection, window.target)
        has_state = is_held(connection, window.state)
        if has_state and not has_rows:
            raise not_there(window.table)
        if has_rows and not has_state:
            raise not_there(window.table, what="What keeps the open windows of table")
        if has_rows:
            yield window


def window_copies(
    pipeline: AuditedPipeline,
    definition: Mapping[str, Any],
    watermark: datetime | None,
) -> Iterator[WindowCopies]:
    """Name the tables of every window output, whether they exist or not."""
    for place, output in enumerate(definition["outputs"]):
        if not kind_of(output).has_windows:
            continue
        table = output["table"]
        yield WindowCopies(
            table=table,
            state=state_table(pipeline.number, table),
            state_copy=f"window_state_{place}",
            rows_copy=f"window_rows_{place}",
            unsettled=_SQL["unsettled"].format(
                lateness=sql.Literal(output.get("allowed_lateness", "0 seconds")),
                # Without a watermark no window has ended.
                watermark=sql.Literal(watermark or "-infinity"),
            ),
        )


def _copy(
    connection: Connection[TupleRow], pipeline: AuditedPipeline, snapshot: Snapshot
) -> None:
    schema = sql.Identifier(_schema_name(snapshot.snapshot_number))
    connection.execute(_SQL["create_schema"].format(schema=schema))
    of_pipeline = _SQL["of_pipeline"].format(pipeline=sql.Literal(pipeline.name))
    parts = [
        (sql.Identifier("tallyweir", table), table, of_pipeline)
        for table in KEPT_BY_PIPELINE
    ]
    for window in held_windows(
        connection, pipeline, snapshot.definition, snapshot.watermark
    ):
        parts += [
            (window.state, window.state_copy, sql.SQL("true").format()),
            (window.target, window.rows_copy, window.unsettled),
        ]
    for source, copy, condition in parts:
        connection.execute(
            _SQL["copy"].format(
                copy=snapshot.copy(copy),
                columns=sql.SQL(", ").join(
                    map(sql.Identifier, columns_of(connection, source))
                ),
                source=source,
                condition=condition,
            )
        )


@contextmanager
def _undisturbed(connection: Connection[TupleRow], pipeline: str) -> Iterator[None]:
    """Keep buckets of seen IDs, from before the moment is chosen until it is noted.

    This also blocks acts that would have to know of the snapshot (``hold_snapshots``).
    """
    with connection.transaction():
        fetch(connection, _SQL["hold"], pipeline=pipeline)
    try:
        yield
    finally:
        if not connection.closed:
            with connection.transaction():
                fetch_one(connection, _SQL["release"], pipeline=pipeline)


def _schema_name(snapshot_number: int) -> str:
    return f"tallyweir_snapshot_{snapshot_number}"
