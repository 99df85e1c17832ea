"""Waiting for a running system, with an end."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 300.0
_POLL_S = 0.5


def await_true(
    condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S
) -> None:
    """Ask until it is so.

    Raises:
        AssertionError: It is not in time; names ``what`` was waited for.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(_POLL_S)
