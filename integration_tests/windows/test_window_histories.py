"""Windows over random histories, against a model that keeps every event.

Tasks' own code makes the partials, and a real server merges them. What varies: when
events happen and arrive, how they fall into batches and tasks, how the watermark
moves, and how often a publish is undone and tried again with other tasks.

Groups of a window table know nothing of each other, so many histories share its
batches, each with groups of its own and its own model.
``TALLYWEIR_WINDOW_HISTORIES`` says how many histories of each kind are tried.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import TupleRow

from integration_tests.harness.window_model import Event, Rules, WindowModel
from integration_tests.harness.window_world import Arrival, WindowWorld

_HISTORIES = int(os.environ.get("TALLYWEIR_WINDOW_HISTORIES", "200"))
_AT_ONCE = 25

T = TypeVar("T")
Connection = psycopg.Connection[TupleRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """How far a batch brings watermark and clock, and how often it is undone."""

    watermark_step: int
    clock_step: int
    undone: int


_AT = 61
_KEYS = ("a", "b", None)
_VALUES = (None, -3, -2, -1, 0, 1, 2, 3)
_TASKS = 3

#: An event, in one number: thousands of them are drawn.
_event = st.integers(0, _AT * len(_KEYS) * len(_VALUES) * _TASKS - 1)
_BATCHES = 6
_history = st.lists(st.lists(_event, max_size=6), max_size=_BATCHES)
_histories = st.lists(_history, min_size=_AT_ONCE, max_size=_AT_ONCE)
_steps = st.lists(
    st.builds(
        _Step,
        watermark_step=st.sampled_from([0, 0, 1, 3, 10, 25]),
        clock_step=st.sampled_from([0, 4, 9, 30]),
        undone=st.sampled_from([0, 0, 0, 1]),
    ),
    min_size=_BATCHES,
    max_size=_BATCHES,
)

_KINDS: dict[str, Rules] = {
    "fixed": Rules(),
    "fixed-revised-sketched": Rules(lateness=12, sketched=True),
    "sliding-revised": Rules(size=10, every=4, lateness=5),
    "off": Rules(lateness=12, early_every=None),
    "every-sliding": Rules(size=10, every=4, lateness=5, early_every=10),
    "discarding": Rules(lateness=12, discarding=True),
    "discarding-off": Rules(lateness=12, discarding=True, early_every=None),
    "discarding-every-sketched": Rules(
        lateness=12, discarding=True, early_every=10, sketched=True
    ),
    "session": Rules(gap=5),
    "session-off": Rules(gap=5, lateness=12, early_every=None),
    "session-revised-sketched": Rules(gap=5, lateness=12, sketched=True),
}


@pytest.fixture
def transaction(server_dsn: str) -> Iterator[Connection]:
    """All histories happen in it; nothing is left of it."""
    with psycopg.connect(server_dsn) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS tallyweir_state")
        yield connection
        connection.rollback()


@pytest.mark.parametrize("kind", _KINDS)
def test_every_pane_of_every_history_is_as_the_model_has_it(
    kind: str, transaction: Connection
) -> None:
    """After each batch: rows, panes, revisions, late events, and state that is left."""
    rules = _KINDS[kind]
    world = WindowWorld(transaction, rules)

    @settings(
        max_examples=max(1, _HISTORIES // _AT_ONCE),
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(histories=_histories, steps=_steps)
    def agrees(histories: list[list[list[int]]], steps: list[_Step]) -> None:
        world.empty()
        models = [WindowModel(rules=rules) for _ in histories]
        watermark: int | None = None
        clock = 0
        for number, step in enumerate(steps):
            batches = [
                _arrivals(history, number, batch)
                for history, batch in enumerate(_nth_batches(histories, number))
            ]
            before, clock = watermark, clock + step.clock_step
            if step.watermark_step:
                watermark = (before or 0) + step.watermark_step
            publish = partial(
                world.publish,
                before=before,
                after=watermark,
                sequence=number + 1,
                planned_at=clock,
            )
            arrivals = [arrival for batch in batches for arrival in batch]
            for undone in range(step.undone):
                with transaction.transaction(force_rollback=True):
                    publish([_moved(arrival, undone + 1) for arrival in arrivals])
            late = _by_history(publish(arrivals))
            world.keep_digests()
            for model, batch in zip(models, batches, strict=True):
                events = [arrival.event for arrival in batch]
                model.take(events, watermark, planned_at=clock)
            _compare(world, models, late)

    agrees()


def _moved(arrival: Arrival, places: int) -> Arrival:
    return replace(arrival, task=(arrival.task + places) % 2)


def _compare(
    world: WindowWorld,
    models: Sequence[WindowModel],
    late: Mapping[int, list[Event]],
) -> None:
    """Hold every history against its model, and all rows against their digests."""
    assert world.differing() == []
    rows = _by_history(world.rows())
    revisions = _by_history(world.revisions())
    still_open = Counter(world.open_windows())
    for history, model in enumerate(models):
        assert model.rows() == rows[history]
        assert sorted(model.late_of_batch, key=repr) == late[history]
        assert sorted(model.revisions, key=repr) == revisions[history]
        assert model.open_windows() == still_open[history]


def _nth_batches(
    histories: Sequence[Sequence[list[int]]], number: int
) -> list[list[int]]:
    return [history[number] if number < len(history) else [] for history in histories]


def _arrivals(history: int, batch: int, events: Sequence[int]) -> list[Arrival]:
    arrivals = []
    for place, drawn in enumerate(events):
        rest, at = divmod(drawn, _AT)
        rest, key = divmod(rest, len(_KEYS))
        task, value = divmod(rest, len(_VALUES))
        event = Event(
            at=at,
            key=_KEYS[key],
            value=_VALUES[value],
            # Each once; a task has the offsets of its own partition.
            position=(task, batch * 100 + place),
        )
        arrivals.append(Arrival(history=history, event=event, task=task))
    return arrivals


def _by_history(found: Iterable[tuple[int, T]]) -> defaultdict[int, list[T]]:
    """Sort what was found into its histories; within each by how it is written."""
    sorted_out: defaultdict[int, list[T]] = defaultdict(list)
    for history, one in found:
        sorted_out[history].append(one)
    for of_one in sorted_out.values():
        of_one.sort(key=repr)
    return sorted_out
