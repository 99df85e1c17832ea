"""Which branch publishes a row: each of an output's events in exactly one part."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.votes import OutputTally
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass
from tallyweir.spark_jobs.task.staged_rows import (
    StagedRows,
    readable_ids,
    spread_evenly,
)

_EVENTS = 500
_KEYS = 40
_HOUR_US = 3_600_000_000
_KEY = Column(name="kind", postgres_type="text")


class _Staging:
    """Keeps the rows of each branch and table."""

    def __init__(self) -> None:
        self.copied: dict[tuple[str, str], list[dict[str, object]]] = {}

    def copy(
        self, branch: str, table: str, columns: tuple[Column, ...], rows: pa.Table
    ) -> None:
        assert [column.name for column in columns] == rows.column_names
        self.copied.setdefault((branch, table), []).extend(rows.to_pylist())

    def copy_results(self, output: AppendTable, rows: pa.Table) -> None:
        raise AssertionError(f"{output.table} is staged: {rows.num_rows}")


def _events(seed: int) -> ClassifiedEvents:
    """Events of two partitions, some dead; null keys and their hashes among them."""
    draw = random.Random(seed)
    keys = [draw.choice([None, *map(str, range(_KEYS))]) for _ in range(_EVENTS)]
    times = [draw.randrange(3 * _HOUR_US) for _ in range(_EVENTS)]
    table = pa.table(
        {
            named.PLACE: pa.array([n % 2 for n in range(_EVENTS)], pa.int64()),
            named.OFFSET: pa.array(range(_EVENTS), pa.int64()),
            named.TIMESTAMP: pa.array(times, pa.timestamp("us", "UTC")),
            named.KEY: pa.nulls(_EVENTS, pa.binary()),
            named.VALUE: pa.array([b"x"] * _EVENTS),
            named.EVENT_ID: pa.array([str(n) for n in range(_EVENTS)]),
            named.EVENT_TIME: pa.array(times, pa.timestamp("us", "UTC")),
            "kind": pa.array(keys, pa.string()),
            # As Spark computes it: a function of the key, and null is a key.
            named.branch_column(0): pa.array(
                [42 % 3 if key is None else int(key) % 3 for key in keys], pa.int32()
            ),
        }
    )
    events = ClassifiedEvents(
        table=table,
        classes=np.zeros(_EVENTS, dtype=np.uint8),
        event_time_us=np.array(times),
    )
    for row in draw.sample(range(_EVENTS), 25):
        events.mark_dead(row, "MALFORMED", "")
    return events


def _append(*branches: str) -> AppendTable:
    return AppendTable(
        table="t",
        staging_table="output_0",
        event_columns=(_KEY,),
        branches=branches,
    )


def _keyed(*_branches: str) -> KeyedTable:
    return KeyedTable(
        table="t",
        staging_table="output_0",
        event_columns=(_KEY,),
        key=(_KEY,),
        columns=(Column(name="n", postgres_type="bigint"),),
    )


def _window(*branches: str) -> WindowTable:
    count = WindowAggregate(
        column=Column(name="n", postgres_type="bigint"),
        function=AggregateFunction.COUNT,
        number=0,
        partial_type="bigint",
    )
    return WindowTable(
        table="t",
        staging_table="output_0",
        windows=fixed_windows(_HOUR_US),
        by=(_KEY,),
        aggregates=(count,),
        allowed_lateness_us=0,
        late=LatePolicy.SIDE_TABLE,
        branches=branches,
    )


def _write(
    events: ClassifiedEvents, output: Output, watermark_us: int | None = None
) -> tuple[_Staging, OutputTally]:
    layout = PipelineLayout(
        pipeline="p",
        definition="{}",
        definition_hash="",
        outputs=(output,),
        shards=1,
        bucket_seconds=60,
        watermark_delay_us=0,
        idle_timeout_us=1,
        horizon_us=None,
        corrected_by=Column(name="event_id", postgres_type="text"),
    )
    rows = StagedRows(
        events=events,
        layout=layout,
        places=SourcePlaces(("t",)),
        watermark_us=watermark_us,
        filter_conditions=("a > 1", "(b) OR (c)"),
    )
    staging = _Staging()
    tallies = rows.write(staging, [])
    return staging, tallies["t"]


def _without(events: ClassifiedEvents, column: str) -> ClassifiedEvents:
    events.table = events.table.drop_columns([column])
    return events


_SHARDED = ("a.0", HOME, "b.0")
_SEEDS = range(5)


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("sharded", [True, False])
def test_every_event_is_appended_by_exactly_one_branch(
    seed: int, *, sharded: bool
) -> None:
    """None is lost between the branches, and none is in two."""
    events = _events(seed)
    branches: tuple[str, ...] = _SHARDED
    if not sharded:
        events, branches = _without(events, named.branch_column(0)), ("a.0", "a.1")
    committed = np.flatnonzero(events.is_class(EventClass.COMMITTED)).tolist()
    staging, tally = _write(events, _append(*branches))
    appended = Counter(
        row["kafka_offset"]
        for (_, table), rows in staging.copied.items()
        for row in rows
        if table == "output_0"
    )
    assert Counter(committed) == appended
    assert OutputTally(events=len(committed), rows=len(committed)) == tally
    used = {branch for branch, table in staging.copied if table == "output_0"}
    assert set(branches) == used


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("kind", [_append, _window])
def test_all_rows_of_a_key_go_to_the_branch_that_its_hash_names(
    seed: int, kind: Callable[..., Output]
) -> None:
    """The position in the list of databases is the hash; null is a key like others."""
    staging, _ = _write(_events(seed), kind(*_SHARDED))
    seen = set()
    for (branch, table), rows in staging.copied.items():
        if table == "output_0":
            for row in rows:
                key = cast("str | None", row["kind"])
                assert branch == _SHARDED[42 % 3 if key is None else int(key) % 3]
                seen.add(key)
    assert None in seen


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_window_over_several_databases_counts_what_one_would(seed: int) -> None:
    """Its groups are the same, and lie apart; its tally is of all of them."""
    alone, tally = _write(_events(seed), _window(HOME))
    apart, tally_apart = _write(_events(seed), _window(*_SHARDED))
    groups = [
        {(row["window_start"], row["kind"]): row["tallyweir_events"] for row in rows}
        for (_, table), rows in apart.copied.items()
        if table == "output_0"
    ]
    together = {key: events for group in groups for key, events in group.items()}
    assert sum(map(len, groups)) == len(together)
    assert together == {
        (row["window_start"], row["kind"]): row["tallyweir_events"]
        for row in alone.copied[HOME, "output_0"]
    }
    assert tally == tally_apart


def test_what_is_no_result_stays_at_home() -> None:
    """Dead letters and late events are kept beside the offsets that passed them."""
    staging, tally = _write(_events(0), _window(*_SHARDED), 2 * _HOUR_US)
    logs = {key for key in staging.copied if key[1] != "output_0"}
    assert {(HOME, "dead_letter"), (HOME, "late_event")} == logs
    assert tally.late == len(staging.copied[HOME, "late_event"]) > 0
    starts = {
        row["window_start"]
        for (_, table), rows in staging.copied.items()
        for row in rows
        if table == "output_0"
    }
    assert {datetime.fromtimestamp(2 * 3600, UTC)} == starts


def _with(events: ClassifiedEvents, name: str, column: pa.Array) -> None:
    events.table = events.table.append_column(name, column)


@pytest.mark.parametrize("kind", [_append, _keyed, _window])
def test_an_output_takes_the_events_that_satisfy_its_condition(
    kind: Callable[..., Output],
) -> None:
    """Their number and the sum of their offsets go to the ledger."""
    events = _events(0)
    wanted = np.arange(_EVENTS) % 3 == 0
    _with(events, named.wanted_column(0), pa.array(wanted))
    expected = np.flatnonzero(events.is_class(EventClass.COMMITTED) & wanted)
    staging, tally = _write(events, kind(HOME))
    rows = staging.copied[HOME, "output_0"]
    assert (len(expected), int(expected.sum())) == (tally.events, tally.checksum)
    # What a function makes of its events is counted when it has.
    assert tally.rows == (0 if kind is _keyed else len(rows))
    if kind is not _window:
        assert expected.tolist() == [row["kafka_offset"] for row in rows]
    else:
        counted = [cast(int, row["tallyweir_events"]) for row in rows]
        assert len(expected) == sum(counted)


def test_an_event_that_only_a_closed_window_wants_is_late() -> None:
    """What the output does not want is not late for it, and in no late table."""
    events = _events(0)
    wanted = np.arange(_EVENTS) % 3 == 0
    _with(events, named.wanted_column(0), pa.array(wanted))
    too_late = (events.event_time_us < 2 * _HOUR_US) & wanted
    too_late &= events.is_class(EventClass.COMMITTED)
    staging, tally = _write(events, _window(HOME), 2 * _HOUR_US)
    assert np.flatnonzero(too_late).tolist() == [
        row["kafka_offset"] for row in staging.copied[HOME, "late_event"]
    ]
    assert int(np.count_nonzero(too_late)) == tally.late


def test_a_filtered_event_is_kept_by_position_with_its_condition() -> None:
    """A dead one is a dead letter."""
    events = _events(0)
    numbers = [None if n % 2 else (n // 2) % 2 for n in range(_EVENTS)]
    _with(events, named.FILTERED_BY, pa.array(numbers, pa.int32()))
    dead = set(events.reasons)
    meant = np.array([n % 2 == 0 and n not in dead for n in range(_EVENTS)])
    events.classes[meant] = EventClass.FILTERED
    staging, tally = _write(events, _append(HOME))
    assert {
        n: ("a > 1", "(b) OR (c)")[n // 2 % 2]
        for n in range(0, _EVENTS, 2)
        if n not in dead
    } == {
        row["kafka_offset"]: row["condition"]
        for row in staging.copied[HOME, "filtered_event"]
    }
    assert dead == {row["kafka_offset"] for row in staging.copied[HOME, "dead_letter"]}
    assert tally.events == sum(n not in dead for n in range(1, _EVENTS, 2))


def test_the_ids_of_corrections_are_staged_with_whether_rows_come_for_them() -> None:
    """One that is filtered only takes rows away."""
    events = _events(0)
    alive = [n for n in range(_EVENTS) if n not in events.reasons]
    events.corrections = np.array(alive[:3])
    events.classes[alive[1]] = EventClass.FILTERED
    _with(events, named.FILTERED_BY, pa.array([0] * _EVENTS, pa.int32()))
    staging, _ = _write(events, _append(HOME))
    assert staging.copied[HOME, "correction"] == [
        {"id": str(n), "event_id": str(n), "is_filtered": n == alive[1]}
        for n in alive[:3]
    ]


@pytest.mark.parametrize("wrong", [-1, 3, None])
def test_an_event_of_no_branch_stops_the_task(wrong: int | None) -> None:
    """It would be committed and in no table."""
    events = _events(0)
    place = events.table.column_names.index(named.branch_column(0))
    chosen = [0] * (_EVENTS - 1) + [wrong]
    events.table = events.table.set_column(
        place, named.branch_column(0), pa.array(chosen, pa.int32())
    )
    with pytest.raises(AssertionError, match="would be lost"):
        _write(events, _append(*_SHARDED))


@pytest.mark.parametrize("step", [1, 2, 3, 16, 1000])
@pytest.mark.parametrize("ways", [2, 3, 7, 16])
def test_events_are_spread_evenly_whatever_steps_their_offsets_take(
    step: int, ways: int
) -> None:
    """Transactions of one event leave only every second offset to events."""
    offsets = np.arange(0, 8_000 * step, step, dtype=np.int64)
    places = np.repeat(np.arange(4, dtype=np.int64), 2_000)
    chosen = spread_evenly(places, offsets, ways)
    shares = np.bincount(chosen, minlength=ways) / len(offsets)
    assert len(shares) == ways
    assert max(abs(shares - 1 / ways)) < 0.1 / ways


def test_the_same_offset_of_another_partition_chooses_for_itself() -> None:
    """Else partitions that are written in step would all load one branch."""
    places = np.arange(64, dtype=np.int64)
    chosen = spread_evenly(places, np.full(64, 7, dtype=np.int64), 4)
    assert 4 == len(set(chosen.tolist()))
    again = spread_evenly(places[::-1], np.full(64, 7, dtype=np.int64), 4)
    assert chosen.tolist() == again.tolist()[::-1]


@pytest.mark.parametrize("read", ["a\x00b", b"a\x00b", "a\ud800b", "x" * 1_000])
def test_an_id_that_was_read_from_a_broken_payload_can_be_stored(read: object) -> None:
    """Postgres refuses such a text, and with it every event of the batch."""
    rows = pa.table({named.EVENT_ID: pa.array([None], pa.string())})
    (stored,) = readable_ids(rows, [read]).to_pylist()
    assert "\x00" not in stored
    assert len(stored.encode()) <= 256
