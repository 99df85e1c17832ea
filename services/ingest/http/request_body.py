"""Bodies and events in flight, within limits that no request can move.

The limits count bytes as they arrive, because a chunked body declares none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from services.ingest.http.refusals import RefusedError

BODY_BYTES_MAX = 1 << 20
#: A body that takes longer is given up: its sender holds a place for nothing.
BODY_TIMEOUT_S = 20.0
#: Bodies that are being read, or whose events wait for their reports.
BYTES_IN_FLIGHT_MAX = 64 << 20
EVENTS_IN_FLIGHT_MAX = 10_000

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class ClientGoneError(Exception):
    """The client left before its body was complete; there is nobody to answer."""


async def read_body(
    receive: Receive,
    *,
    declared: int | None,
    bytes_max: int = BODY_BYTES_MAX,
    timeout_s: float = BODY_TIMEOUT_S,
) -> bytes:
    """Read a request's body.

    Args:
        receive: ASGI's.
        declared: The content length, if there is one.
        bytes_max: More are not held.
        timeout_s: For all of it.

    Raises:
        RefusedError: ``BODY_TOO_LARGE`` or ``BODY_TOO_SLOW``.
        ClientGoneError: It will never be complete.
    """
    if declared is not None and declared > bytes_max:
        raise _too_large(bytes_max)
    parts = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                part = message.get("body", b"")
                size += len(part)
                if size > bytes_max:
                    raise _too_large(bytes_max)
                parts.append(part)
                if not message.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError as exc:
        raise RefusedError(
            "BODY_TOO_SLOW",
            status=408,
            saw=f"The body was not complete after {timeout_s:.0f} s.",
            why="A place that waits is taken from others.",
            fix="Send the request again.",
        ) from exc


class InFlight:
    """How much is being worked on, so that no load becomes memory.

    Attributes:
        requests_bytes: Sizes of the bodies in flight, the declared or the largest.
        events: Events that wait for the broker's report.
    """

    def __init__(self) -> None:
        self.requests_bytes = 0
        self.events = 0

    def take_body(self, declared: int | None) -> int:
        """Take room for a body before it is read; return what to give back.

        Raises:
            RefusedError: ``QUEUE_FULL``.
        """
        room = BODY_BYTES_MAX if declared is None else min(declared, BODY_BYTES_MAX)
        if self.requests_bytes + room > BYTES_IN_FLIGHT_MAX:
            raise _full()
        self.requests_bytes += room
        return room

    def take_events(self, count: int) -> None:
        """Take room for events before they are sent.

        Raises:
            RefusedError: ``QUEUE_FULL``.
        """
        if self.events + count > EVENTS_IN_FLIGHT_MAX:
            raise _full()
        self.events += count


def _full() -> RefusedError:
    return RefusedError(
        "QUEUE_FULL",
        status=429,
        saw="As much is in flight as may be.",
        why="The broker takes events more slowly than they come.",
        fix="Send the same again later, more slowly.",
        retry_after_s=1,
    )


def _too_large(bytes_max: int) -> RefusedError:
    return RefusedError(
        "BODY_TOO_LARGE",
        status=413,
        saw=f"The body is larger than {bytes_max:,} bytes.",
        why="It is held in memory until what it asks for is done.",
        fix="Send less at once.",
    )
