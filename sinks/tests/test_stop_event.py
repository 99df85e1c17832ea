"""A process that is told to end ends, whatever its main thread does just then."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tallyweir.sinks.stop_event import StopEvent


@pytest.fixture
def event() -> Iterator[StopEvent]:
    """An event that SIGUSR1 sets."""
    made = StopEvent()
    former = signal.signal(signal.SIGUSR1, lambda *_: made.set())
    yield made
    signal.signal(signal.SIGUSR1, former)


@pytest.mark.timeout(10)
def test_a_signal_sets_it_while_the_main_thread_holds_its_lock(
    event: StopEvent,
) -> None:
    """As ``wait`` does for some microseconds of each round."""
    with event._cond:
        signal.raise_signal(signal.SIGUSR1)
    assert event.wait(0)


@pytest.mark.timeout(10)
def test_a_signal_between_looking_and_sleeping_is_noticed(event: StopEvent) -> None:
    """It wakes nobody, because nobody sleeps yet."""
    begun = time.monotonic()
    # What a handler does then: it sets the flag, and there is nobody to wake.
    timer = threading.Timer(0.05, lambda: setattr(event, "_flag", True))
    timer.start()
    assert event.wait(60)
    assert time.monotonic() - begun < 5
    timer.join()


@pytest.mark.timeout(10)
def test_it_is_waited_for_no_longer_than_asked(event: StopEvent) -> None:
    """And set by another thread it ends the wait."""
    begun = time.monotonic()
    assert not event.wait(0.05)
    assert time.monotonic() - begun < 1
    timer = threading.Timer(0.05, event.set)
    timer.start()
    assert event.wait()
    timer.join()
