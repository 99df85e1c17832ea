"""Drivers, a resolver, three databases, random faults: every event counts once.

A seed that failed becomes a row of ``_FOUND``. Its history changes with the
simulation, so a mistake that it found also gets a test of its own elsewhere. More
histories than here: ``python -m tallyweir.sinks.testing.simulation --histories
1000000``.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tallyweir.sinks.testing.simulation.faults import PLACES
from tallyweir.sinks.testing.simulation.history import run_histories, run_history

_FEW = 300

#: Histories, how often everything must have gone wrong in them, and how often each
#: ending must have come of it. On average the rarest fault comes in one of thirty-seven
#: histories, the rarest ending in one of two hundred and fifty.
_MANY = (5_000, 75, 1)
_LONG = (20_000, 400, 10)

#: Seeds that found a mistake, real or made on purpose, by what was wrong.
_FOUND = {
    "facts were read before branches were listed": 2508,
    "two tries of a batch shared a name": 3140,
    "a decided branch that was prepared again counted as lost": 3901463027,
    "a restore that mended what a driver had just found made its alarm false": (
        2355302854
    ),
}


def _first_seed() -> int:
    return random.SystemRandom().randrange(2**32)


def test_each_event_counts_once_in_some_histories() -> None:
    """Whatever goes wrong, the databases agree after each step; every run is new."""
    coverage = run_histories(_first_seed(), _FEW)
    # A run in which nothing went wrong proves nothing.
    assert coverage.rarest_fault()[0] > 0, coverage.table()


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("many", "times_min", "endings_min"),
    [_MANY, pytest.param(*_LONG, marks=pytest.mark.long)],
)
def test_each_event_counts_once_in_many_histories(
    many: int, times_min: int, endings_min: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every kind of fault, and every side of every fault point, is hit often."""
    first = _first_seed()
    coverage = run_histories(first, many)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{many} histories, seeds from {first}\n{coverage.table()}\n"
        )
    times, rarest = coverage.rarest_fault()
    assert times >= times_min, f"{rarest} happened {times} times only"
    assert coverage.rarest_ending()[0] >= endings_min


@pytest.mark.parametrize("seed", _FOUND.values(), ids=list(_FOUND))
def test_what_was_found_once_stays_found(seed: int) -> None:
    """A history that failed passes now."""
    run_history(seed)


def test_a_seed_reproduces_its_history() -> None:
    """The trace is the same in another process, whatever its hashes are."""
    traces = [
        subprocess.run(
            [sys.executable, "-m", "tallyweir.sinks.testing.simulation", "1"],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    ]
    assert traces[0] == traces[1]
    assert "seed 1: ok" in traces[0]


def test_faults_hit_both_sides_of_every_point() -> None:
    """The table has a row for each."""
    assert len(PLACES) == 2 * 11 + 1
