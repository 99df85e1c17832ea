"""A change of a pipeline's version that dies; for a process of its own."""

from __future__ import annotations

import os
import signal

from integration_tests.harness.versioned_windows import SECOND, change, go_back
from tallyweir.sinks.faultpoints import Side, VersionPoint, arm


def change_and_die(dsn: str, kind: str, point: VersionPoint, side: Side) -> None:
    """Do a change, and be killed at one side of one point of it.

    Args:
        dsn: Of the home that has the pipeline of ``versioned_windows``.
        kind: ``update`` to its second version, or ``rollback`` to its first.
        point: Where.
        side: Of the point.
    """
    arm(point, lambda: os.kill(os.getpid(), signal.SIGKILL), side=side)
    if kind == "update":
        change(dsn, SECOND)
    else:
        go_back(dsn, 1)
