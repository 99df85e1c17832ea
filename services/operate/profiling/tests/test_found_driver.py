"""Only the process that has the newest claim is sampled."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from tallyweir.services.operate.profiling.driver_samples import (
    _named_stack,
    find_driver,
    fold_samples,
)
from tallyweir.sinks.postgres.audit import PipelineSummary
from tallyweir.sinks.postgres.audit.status.overview import RecentCounts
from tallyweir.sinks.postgres.audit.status.progress import DriverStatus
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.guarantee import Guarantee

_NOW = datetime.now(UTC)
_HERE = DriverStatus(
    epoch=3,
    host=socket.gethostname(),
    process_id=os.getpid(),
    claimed_at=_NOW,
    is_connected=True,
)


def _summary(driver: DriverStatus | None) -> PipelineSummary:
    return PipelineSummary(
        pipeline="orders",
        guarantee=Guarantee.EXACTLY_ONCE,
        topics=("orders",),
        observed_at=_NOW,
        watermark=None,
        newest_event_time=None,
        last_sequence=0,
        visible_through=0,
        last_published_at=None,
        next_offsets={},
        recent=RecentCounts(**dict.fromkeys(RecentCounts.__dataclass_fields__, 0)),
        driver=driver,
        wait=None,
        pause=None,
        drain=None,
    )


def test_the_process_of_the_newest_claim_is_found() -> None:
    """By its number, on its host."""
    found = find_driver([_summary(_HERE)], "orders")
    assert (3, os.getpid(), None) == (found.epoch, found.process_id, found.jvm)


@pytest.mark.parametrize(
    ("driver", "code"),
    [
        (None, "PROFILE_NO_DRIVER"),
        (replace(_HERE, is_connected=False), "PROFILE_NO_DRIVER"),
        (replace(_HERE, host="elsewhere"), "PROFILE_OTHER_HOST"),
        (replace(_HERE, process_id=2**22 + 1), "PROFILE_NO_DRIVER"),
        # Its number is somebody else's now.
        (
            replace(
                _HERE,
                claimed_at=datetime.fromtimestamp(psutil.Process().create_time(), UTC)
                - timedelta(hours=1),
            ),
            "PROFILE_NO_DRIVER",
        ),
    ],
)
def test_nobody_else_is_sampled(driver: DriverStatus | None, code: str) -> None:
    """Each case has its own error."""
    with pytest.raises(ConfigurationError, match=code):
        find_driver([_summary(driver)], "orders")


def test_a_pipeline_that_is_not_there_is_told_with_those_that_are() -> None:
    """A slip of the keyboard is seen at once."""
    with pytest.raises(ConfigurationError, match="it has: orders"):
        find_driver([_summary(_HERE)], "order")


def test_stacks_tell_the_driver_from_its_workers() -> None:
    """All workers together, without their numbers and command lines."""
    assert ("driver", "main") == _named_stack(('process 7:"python -m x"', "main"), 7)
    workers = ('process 7:"python"', 'process 9:"python -m w"', "work")
    assert ("Python workers", "work") == _named_stack(workers, 7)
    assert ("Python workers", "work") == _named_stack(workers[1:], 7)
    assert ("driver", "main") == _named_stack(("main",), 7)


def test_samples_of_the_jvm_are_counted_from_the_outermost_frame() -> None:
    """Flight Recorder has the innermost first; some samples have no stack."""
    frames = [
        {"method": {"type": {"name": f"a/b/C{n}"}, "name": "run"}} for n in range(2)
    ]
    events = [
        {"values": {"stackTrace": {"frames": frames}}},
        {"values": {"stackTrace": {"frames": frames}}},
        {"values": {"stackTrace": None}},
    ]
    found = fold_samples({"recording": {"events": events}})
    assert {("JVM", "a.b.C1.run", "a.b.C0.run"): 2} == found
