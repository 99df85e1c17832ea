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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import TupleRow

from integration_tests.harness.window_model import Event, Rules, WindowModel
from integration_tests.harness.window_world import Arrival, WindowWorld

_HISTORIES = int(os.environ.get("TALLYWEIR_WINDOW_HISTORIES", "400"))
_AT_ONCE = 25

T = TypeVar("T")
Connection = psycopg.Connection[TupleRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """How far a batch brings the watermark, and how often it is undone before."""

    watermark_step: int
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
        undone=st.sampled_from([0, 0, 0, 1]),
    ),
    min_size=_BATCHES,
    max_size=_BATCHES,
)

_KINDS: dict[str, Rules] = {
    "fixed": Rules(),
    "fixed-revised-sketched": Rules(lateness=12, sketched=True),
    "sliding-revised": Rules(size=10, every=4, lateness=5),
    "session": Rules(gap=5),
    "session-revised-sketched": Rules(gap=5, lateness=12, sketched=True),
}


@pytest.fixture
def transaction(home_dsn: str) -> Iterator[Connection]:
    """All histories happen in it."""
    with psycopg.connect(home_dsn) as connection:
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
        watermark = None
        for number, step in enumerate(steps):
            batches = [
                _arrivals(history, number, batch)
                for history, batch in enumerate(_nth_batches(histories, number))
            ]
            watermark = _follow(world, models, batches, step, watermark)

    agrees()


def _follow(
    world: WindowWorld,
    models: Sequence[WindowModel],
    batches: Sequence[list[Arrival]],
    step: _Step,
    before: int | None,
) -> int | None:
    """Publish one batch, hold every history against its model; return the watermark."""
    after = before
    if step.watermark_step:
        after = (before or 0) + step.watermark_step
    arrivals = [arrival for batch in batches for arrival in batch]
    for undone in range(step.undone):
        with world.connection.transaction(force_rollback=True):
            moved = [replace(a, task=(a.task + undone + 1) % 2) for a in arrivals]
            world.publish(moved, before, after)
    late = _by_history(world.publish(arrivals, before, after))
    rows = _by_history(world.rows())
    revisions = _by_history(world.rows("w_revisions"))
    still_open = Counter(world.open_windows())
    for history, (model, batch) in enumerate(zip(models, batches, strict=True)):
        known = len(model.late)
        model.take([arrival.event for arrival in batch], after)
        assert model.rows() == rows[history]
        assert sorted(model.late[known:], key=repr) == late[history]
        assert sorted(model.revisions, key=repr) == revisions[history]
        assert model.open_windows() == still_open[history]
    return after


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
