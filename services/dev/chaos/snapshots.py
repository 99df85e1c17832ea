"""Snapshots during a run: whole batches, and each record that Kafka had, once.

A snapshot is one REPEATABLE READ snapshot of the home database, followed by one of each
participant. For each partition, below the offset that is visible everywhere, it must
show::

    result rows == ledger's committed      (of all databases together)
    duplicates  == ledger's duplicate
    dead letters == ledger's dead
    events in the windows == ledger's committed, over all partitions
    nothing at or above the home database's next offset

Once everything is sent, the counts and the sums of offsets are also compared with what
the broker had at those offsets (``judge_against_sent``). ``SnapshotReader`` takes them.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import psycopg
from psycopg import sql

from tallyweir.services.dev.chaos.chaos_world import (
    EVENTS_TABLE,
    PIPELINE,
    TOPIC,
    ChaosWorld,
)
from tallyweir.services.dev.chaos.plan import HOME
from tallyweir.services.dev.chaos.sent_log import Place
from tallyweir.sinks.postgres.server.statements import load_statements


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What one snapshot shows of one partition, from ``floor`` up to ``until``.

    Attributes:
        partition: A partition of the topic.
        floor: Offset from which rows were counted.
        until: Offset below which rows were counted.
        found: Number of rows of results, duplicates and dead letters.
        ledger: The ledger's counts of the same three.
        offset_sum: Sum of the offsets of all rows found.
        beyond: Number of rows at or above the home database's next offset.
    """

    partition: int
    floor: int
    until: int
    found: tuple[int, int, int]
    ledger: tuple[int, int, int]
    offset_sum: int
    beyond: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one snapshot shows.

    Attributes:
        spans: The spans of all partitions.
        window_events: Number of events that the windows hold.
        committed: Number of events that the ledger counts as committed.
    """

    spans: tuple[Span, ...]
    window_events: int
    committed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBatch:
    """A batch of the ledger, as a snapshot showed it."""

    sequence: int
    epoch: int
    spark_batch_id: int


def floors_below(
    floors: Mapping[int, int], visible: Mapping[int, int]
) -> dict[int, int]:
    """Lower the floors to what is visible, by partition.

    Less may be visible than before. Which batches are committed in every database is
    recorded without waiting for the home server's disk. So a crash of the server may
    lose the last of these records, and a driver or the resolver makes them again.
    """
    return {
        partition: min(floors.get(partition, 0), until)
        for partition, until in visible.items()
    }


def judge_snapshot(snapshot: Snapshot) -> list[str]:
    """Say where a snapshot shows only a part of a batch."""
    violations = []
    for span in snapshot.spans:
        where = f"partition {span.partition}, offsets {span.floor}..{span.until}"
        if span.found != span.ledger:
            violations.append(
                f"{where}: (rows, duplicates, dead) {span.found}, the ledger says "
                f"{span.ledger}"
            )
        if span.beyond:
            violations.append(f"{where}: {span.beyond} rows beyond the next offset")
    if snapshot.window_events != snapshot.committed:
        violations.append(
            f"the windows hold {snapshot.window_events} events, the ledger has "
            f"committed {snapshot.committed}"
        )
    return violations


def judge_against_sent(
    snapshots: Sequence[Snapshot], sent: Mapping[Place, object]
) -> list[str]:
    """Say which snapshots lack a record that Kafka had, or hold another one."""
    offsets: dict[int, list[int]] = {}
    for partition, offset in sorted(sent):
        offsets.setdefault(partition, []).append(offset)
    sums = {
        partition: [0, *accumulate(several)] for partition, several in offsets.items()
    }
    violations = []
    for snapshot in snapshots:
        for span in snapshot.spans:
            several = offsets.get(span.partition, [])
            first = bisect_left(several, span.floor)
            last = bisect_left(several, span.until)
            prefix = sums.get(span.partition, [0])
            expected = last - first, prefix[last] - prefix[first]
            found = sum(span.found), span.offset_sum
            if found != expected:
                violations.append(
                    f"partition {span.partition}, offsets {span.floor}..{span.until}: "
                    f"{found[0]} records with offset sum {found[1]}, Kafka had "
                    f"{expected[0]} with {expected[1]}"
                )
    return violations


_SQL = load_statements("tallyweir.services.dev.chaos", "snapshot.sql")

_Connection = psycopg.Connection[tuple[Any, ...]]

#: Rows, sum of offsets and rows beyond the bound, by partition.
_Tally = dict[int, tuple[int, int, int]]

#: After this many snapshots, the reader leaves the rows so far to the final check.
_LOOKS_PER_FLOOR = 20
#: The reader rests this many times as long as it looks, so that the pipeline can work.
_REST_SHARE = 4.0
_REST_MIN_S = 0.05
_NOTHING = (0, 0, 0)


class SnapshotReader(threading.Thread):
    """Takes snapshots until stopped; reconnects after a server has died.

    Args:
        world: The world to look at.
        tell: Called at once with each violation of a fractured snapshot.

    Attributes:
        snapshots: Every snapshot.
        fractured: What was wrong with them according to the ledger.
        batches: Every batch that a snapshot showed, by sequence.
        changed_batches: Batches that two snapshots showed differently.
        in_doubt_s: The greatest age at which a prepared transaction was seen.
        records_read: Number of records that the pipeline had read at the last snapshot.
        failure: The error that ended the reader, if there was one.
    """

    def __init__(self, world: ChaosWorld, tell: Callable[[str], None]) -> None:
        super().__init__(name="snapshots", daemon=True)
        self._world = world
        self._tell = tell
        self._connections: dict[str, _Connection] = {}
        self._floors: dict[int, int] = {}
        self._ending = threading.Event()
        self.snapshots: list[Snapshot] = []
        self.fractured: list[str] = []
        self.batches: dict[int, SeenBatch] = {}
        self.changed_batches: list[str] = []
        self.in_doubt_s = 0.0
        self.records_read = 0
        self.failure: Exception | None = None

    def stop(self) -> None:
        """End after the current snapshot, and wait for the end."""
        self._ending.set()
        if self.is_alive():
            self.join()
        self._disconnect()

    def run(self) -> None:
        """Take snapshots until stopped."""
        rest_s = _REST_MIN_S
        try:
            while not self._ending.wait(rest_s):
                began = time.monotonic()
                try:
                    self._look()
                except psycopg.OperationalError:
                    # A server has died, so the unfinished snapshot does not count.
                    self._disconnect()
                rest_s = max(_REST_MIN_S, _REST_SHARE * (time.monotonic() - began))
        except Exception as error:  # noqa: BLE001 (the waiting thread raises it)
            self.failure = error

    def _look(self) -> None:
        """Take one snapshot of every database, and judge it."""
        home = self._connection(HOME)
        with home.transaction():
            home.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            positions = _positions(home, "positions")
            if not positions or not _one(home, "tables_there"):
                return
            visible = positions
            if len(self._world.servers) > 1:
                visible = _positions(home, "visible")
            self._floors = floors_below(self._floors, visible)
            snapshot = self._read(home, positions, visible)
            self.records_read = _one(home, "records_read", pipeline=PIPELINE)
            self._take_in_batches(home)
        self._look_for_prepared()
        for violation in judge_snapshot(snapshot):
            self.fractured.append(violation)
            self._tell(f"FRACTURED snapshot: {violation}")
        self.snapshots.append(snapshot)
        if len(self.snapshots) % _LOOKS_PER_FLOOR == 0:
            self._floors = visible

    def _read(
        self, home: _Connection, positions: dict[int, int], visible: dict[int, int]
    ) -> Snapshot:
        bounds = self._bounds(visible)
        rows = _result_rows(home, bounds)
        beyond = _result_rows(home, self._bounds(positions))
        aside = [
            _put_aside(home, table, bounds)
            for table in ("duplicate_event", "dead_letter")
        ]
        ledger = {
            partition: (int(committed), int(duplicate), int(dead))
            for partition, committed, duplicate, dead in home.execute(
                _SQL["ledger_counts"], bounds
            )
        }
        window_events = _one(home, "window_events")
        committed = _one(home, "committed_events", pipeline=PIPELINE)
        # Read the participants after the home database has said what is visible.
        everywhere = [
            rows,
            *(
                _result_rows(self._connection(name), bounds)
                for name in self._world.servers
                if name != HOME
            ),
        ]
        return Snapshot(
            spans=tuple(
                _span(
                    partition,
                    (self._floors.get(partition, 0), until),
                    tallies=(_total(everywhere, partition), *_at(aside, partition)),
                    ledger=ledger.get(partition, _NOTHING),
                    beyond=beyond.get(partition, _NOTHING)[2],
                )
                for partition, until in sorted(visible.items())
            ),
            window_events=window_events,
            committed=committed,
        )

    def _look_for_prepared(self) -> None:
        for name in self._world.servers:
            rows = self._connection(name).execute(_SQL["longest_in_doubt"])
            for (seconds,) in rows:
                self.in_doubt_s = max(self.in_doubt_s, seconds)

    def _bounds(self, untils: Mapping[int, int]) -> dict[str, object]:
        partitions = sorted(untils)
        return {
            "pipeline": PIPELINE,
            "topic": TOPIC,
            "partitions": partitions,
            "floors": [self._floors.get(partition, 0) for partition in partitions],
            "untils": [untils[partition] for partition in partitions],
        }

    def _take_in_batches(self, home: _Connection) -> None:
        # Read the newest known batch once more: it must not have changed.
        after = max(self.batches, default=1) - 1
        for sequence, epoch, spark_batch_id in home.execute(
            _SQL["new_batches"], {"pipeline": PIPELINE, "after": after}
        ):
            batch = SeenBatch(
                sequence=sequence, epoch=epoch, spark_batch_id=spark_batch_id
            )
            former = self.batches.setdefault(sequence, batch)
            if former != batch:
                self.changed_batches.append(f"{former} became {batch}")

    def _connection(self, database: str) -> _Connection:
        known = self._connections.get(database)
        if known is None or known.closed:
            known = self._connections[database] = self._world.connect(database)
        return known

    def _disconnect(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def _positions(home: _Connection, statement: str) -> dict[int, int]:
    rows = home.execute(_SQL[statement], {"pipeline": PIPELINE})
    return dict(rows.fetchall())


def _result_rows(connection: _Connection, bounds: Mapping[str, object]) -> _Tally:
    statement = _SQL["result_rows"].format(table=sql.Identifier(EVENTS_TABLE))
    return _tally(connection, statement, bounds)


def _put_aside(
    connection: _Connection, table: str, bounds: Mapping[str, object]
) -> _Tally:
    statement = _SQL["put_aside"].format(table=sql.Identifier(table))
    return _tally(connection, statement, bounds)


def _tally(
    connection: _Connection, statement: sql.Composed, bounds: Mapping[str, object]
) -> _Tally:
    return {
        partition: (rows, int(offset_sum), beyond)
        for partition, rows, offset_sum, beyond in connection.execute(statement, bounds)
    }


def _one(connection: _Connection, statement: str, **values: object) -> int:
    row = connection.execute(_SQL[statement], values).fetchone()
    assert row is not None
    return int(row[0])


def _total(tallies: list[_Tally], partition: int) -> tuple[int, int, int]:
    several = _at(tallies, partition)
    return (
        sum(one[0] for one in several),
        sum(one[1] for one in several),
        sum(one[2] for one in several),
    )


def _at(tallies: list[_Tally], partition: int) -> list[tuple[int, int, int]]:
    return [tally.get(partition, _NOTHING) for tally in tallies]


def _span(
    partition: int,
    bounds: tuple[int, int],
    *,
    tallies: tuple[tuple[int, int, int], ...],
    ledger: tuple[int, int, int],
    beyond: int,
) -> Span:
    rows, duplicates, dead = tallies
    return Span(
        partition=partition,
        floor=bounds[0],
        until=bounds[1],
        found=(rows[0], duplicates[0], dead[0]),
        ledger=ledger,
        offset_sum=rows[1] + duplicates[1] + dead[1],
        beyond=beyond,
    )
