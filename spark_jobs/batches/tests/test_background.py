"""Work that goes on beside its caller."""

from __future__ import annotations

import threading

import pytest

from tallyweir.spark_jobs.batches.bridge import begin_in_thread

_PATIENCE_S = 60.0


def test_work_goes_on_beside_its_caller() -> None:
    """Whoever begins it need not wait, and nobody does when the process ends."""
    may_end = threading.Event()
    threads: list[threading.Thread] = []

    def work() -> None:
        threads.append(threading.current_thread())
        assert may_end.wait(_PATIENCE_S)

    begun = begin_in_thread(work)
    assert not begun.done()
    may_end.set()
    begun.result(_PATIENCE_S)
    assert begun.done()
    assert threads[0] is not threading.current_thread()
    assert threads[0].daemon


def test_whoever_waits_is_told_what_went_wrong() -> None:
    """The thread itself tells nobody."""

    def work() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        begin_in_thread(work).result(_PATIENCE_S)
