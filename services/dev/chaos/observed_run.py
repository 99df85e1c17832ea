"""Everything that a finished run left behind, read once and held in memory."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql

from tallyweir.services.dev.chaos.chaos_world import EVENTS_TABLE, PIPELINE
from tallyweir.services.dev.chaos.plan import HOME
from tallyweir.services.dev.chaos.sent_log import Place
from tallyweir.services.dev.chaos.workload import ChaosEvent
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.services.dev.chaos", "observed_run.sql")

Connections = Mapping[str, Connection[tuple[Any, ...]]]

#: Start of a window, and site.
WindowKey = tuple[dt.datetime, str]
#: Events, sum, least and greatest amount.
WindowTotals = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow:
    """One row of the append output.

    Attributes:
        database: The database that holds it.
        place: The place of the record that it names as its source.
        event_id: The ID of its event.
        fingerprint: The hash of its columns, computed from the columns.
    """

    database: str
    place: Place
    event_id: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBatch:
    """One row of ``tallyweir.batch``."""

    sequence: int
    epoch: int
    spark_batch_id: int
    published_at: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRange:
    """One row of ``tallyweir.batch_partition``; ``other`` adds up all other counts."""

    sequence: int
    partition: int
    from_offset: int
    until_offset: int
    read: int
    committed: int
    duplicate: int
    dead: int
    other: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A branch of a batch: as it was decided, or as its marker says.

    Attributes:
        database: The database that it publishes to.
        sequence: The sequence of its batch.
        gid: The global id under which it was prepared.
        rows: For a marker, the number of rows that it moved; None for a decision.
    """

    database: str
    sequence: int
    gid: str
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """What the databases hold.

    Attributes:
        rows: Rows of the append output, from all databases.
        duplicates: Place and event ID of each dropped repeat.
        dead_letters: Place and reason of each dead letter.
        other_places: Places of late and expired events.
        batches: The ledger's batches, in order of their sequence.
        ranges: The ledger's ranges, in order of sequence and partition.
        positions: Next offset, by partition.
        last_sequence: The last sequence in the pipeline's row.
        claims: Every epoch that was claimed.
        windows: Window and site with their totals; repeated keys are all kept.
        decided: Branches that the decisions list.
        markers: Branches that were committed.
    """

    rows: tuple[ResultRow, ...]
    duplicates: tuple[tuple[Place, str], ...]
    dead_letters: tuple[tuple[Place, str], ...]
    other_places: tuple[Place, ...]
    batches: tuple[LedgerBatch, ...]
    ranges: tuple[LedgerRange, ...]
    positions: Mapping[int, int]
    last_sequence: int
    claims: tuple[int, ...]
    windows: tuple[tuple[WindowKey, WindowTotals], ...]
    decided: tuple[Branch, ...]
    markers: tuple[Branch, ...]


def observe(connections: Connections) -> ObservedRun:
    """Read everything; no driver may work meanwhile.

    Args:
        connections: Connections by database name.
    """
    return observe_pipeline(
        connections,
        PIPELINE,
        rows=[
            row
            for database, connection in connections.items()
            for row in _read_rows(database, connection)
        ],
        windows=[
            ((start, site), (events, int(total), least, most))
            for start, site, events, total, least, most in connections[HOME].execute(
                _SQL["windows"]
            )
        ],
    )


def observe_pipeline(
    connections: Connections,
    pipeline: str,
    *,
    rows: Iterable[ResultRow],
    windows: Iterable[tuple[WindowKey, WindowTotals]] = (),
) -> ObservedRun:
    """Read everything but the results, which differ from pipeline to pipeline.

    Args:
        connections: Connections by database name.
        pipeline: The pipeline whose ledger is read.
        rows: The rows of its append output.
        windows: The rows of its windows, if they are those of chaos.
    """
    home = connections[HOME]

    def fetch(statement: str) -> list[tuple[Any, ...]]:
        return home.execute(_SQL[statement], {"pipeline": pipeline}).fetchall()

    ((last_sequence,),) = fetch("last_sequence")
    return ObservedRun(
        rows=tuple(rows),
        duplicates=tuple(
            ((partition, offset), event_id)
            for partition, offset, event_id in fetch("duplicates")
        ),
        dead_letters=tuple(
            ((partition, offset), reason)
            for partition, offset, reason in fetch("dead_letters")
        ),
        other_places=tuple(
            (partition, offset) for partition, offset in fetch("other_places")
        ),
        batches=tuple(
            LedgerBatch(
                sequence=sequence,
                epoch=epoch,
                spark_batch_id=spark_batch_id,
                published_at=published_at,
            )
            for sequence, epoch, spark_batch_id, published_at in fetch("batches")
        ),
        ranges=tuple(LedgerRange(**_named(row)) for row in fetch("ranges")),
        positions=dict(fetch("positions")),
        last_sequence=last_sequence,
        claims=tuple(epoch for (epoch,) in fetch("claims")),
        windows=tuple(windows),
        decided=tuple(
            Branch(database=branch.partition(".")[0], sequence=sequence, gid=gid)
            for sequence, branch, gid in fetch("decided_branches")
        ),
        markers=tuple(
            marker
            for database, connection in connections.items()
            for marker in _read_markers(database, connection, pipeline)
        ),
    )


def read_prepared(connections: Connections) -> dict[str, list[str]]:
    """Return the gids of prepared transactions, for each database that has any."""
    found = {
        name: [gid for (gid,) in connection.execute(_SQL["prepared"])]
        for name, connection in connections.items()
    }
    return {name: gids for name, gids in found.items() if gids}


def _read_rows(
    database: str, connection: Connection[tuple[Any, ...]]
) -> list[ResultRow]:
    statement = _SQL["result_rows"].format(table=sql.Identifier(EVENTS_TABLE))
    return [
        ResultRow(
            database=database,
            place=(partition, offset),
            event_id=event_id,
            fingerprint=ChaosEvent(
                event_id=event_id,
                site=site,
                amount=amount,
                happened_at_us=happened_at_us,
                note=note,
            ).fingerprint,
        )
        for (
            partition,
            offset,
            event_id,
            site,
            amount,
            happened_at_us,
            note,
        ) in connection.execute(statement)
    ]


def _read_markers(
    database: str, connection: Connection[tuple[Any, ...]], pipeline: str
) -> list[Branch]:
    ((has_markers,),) = connection.execute(_SQL["has_markers"])
    if not has_markers:
        return []
    rows = connection.execute(_SQL["markers"], {"pipeline": pipeline})
    return [
        Branch(database=database, sequence=sequence, gid=gid, rows=moved)
        for sequence, gid, moved in rows
    ]


def _named(row: tuple[Any, ...]) -> dict[str, int]:
    return dict(zip(LedgerRange.__dataclass_fields__, row, strict=True))
