"""Bodies and events in flight, within limits that no request can move.

The limits count bytes as they arrive, because a chunked body declares no length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from tallyweir.services.process.refusals import RefusedError

BODY_BYTES_MAX = 1 << 20
#: The service gives up on a slower body, because it takes room from others.
BODY_TIMEOUT_S = 20.0
#: All bodies that are being read, or that have events waiting for their reports.
BYTES_IN_FLIGHT_MAX = 64 << 20
#: The room that a request takes in addition to its body.
REQUEST_BYTES = 8 << 10
EVENTS_IN_FLIGHT_MAX = 10_000

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class ClientGoneError(Exception):
    """The client left before its body was complete, so it gets no answer."""


async def read_body(
    receive: Receive,
    *,
    declared: int | None,
    bytes_max: int = BODY_BYTES_MAX,
    timeout_s: float = BODY_TIMEOUT_S,
    take: Callable[[int], None] = lambda _: None,
) -> bytes:
    """Read a request's body.

    Args:
        receive: ASGI's ``receive``.
        declared: The content length, if there is one.
        bytes_max: The largest body that is accepted.
        timeout_s: The time limit for the whole body.
        take: Takes room for the bytes of a part that has arrived.

    Raises:
        RefusedError: ``BODY_TOO_LARGE`` or ``BODY_TOO_SLOW``, or as ``take``.
        ClientGoneError: The client left before the body was complete.
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
                take(len(part))
                parts.append(part)
                if not message.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError as exc:
        raise RefusedError(
            "BODY_TOO_SLOW",
            status=408,
            saw=f"The body was not complete after {timeout_s:.0f} s.",
            why="A slow request takes a place from others.",
            fix="Send the request again.",
        ) from exc


class Room:
    """Room that producers share; no producer may hold more of it than is still free.

    A single producer gets a half, two get a third each, and the next finds some left.

    Attributes:
        taken: The room that all producers hold together.
    """

    def __init__(self, size: int) -> None:
        self.taken = 0
        self._size = size
        self._held: dict[str, int] = {}

    def take(self, producer: str, amount: int) -> None:
        """Take room.

        Raises:
            RefusedError: ``QUEUE_FULL``.
        """
        held = self._held.get(producer, 0) + amount
        if held > self._size - self.taken:
            raise _full()
        self._held[producer] = held
        self.taken += amount

    def give_back(self, producer: str, amount: int) -> None:
        """Give back room."""
        self.taken -= amount
        self._held[producer] -= amount
        if not self._held[producer]:
            del self._held[producer]


class InFlight:
    """How much work is in flight, with limits, so that load does not fill the memory.

    Attributes:
        bytes: The bytes of bodies that have arrived, and of the requests themselves.
        events: The events that wait for the broker's report.
    """

    def __init__(self) -> None:
        self.bytes = Room(BYTES_IN_FLIGHT_MAX)
        self.events = Room(EVENTS_IN_FLIGHT_MAX)

    @contextmanager
    def request(self, producer: str) -> Iterator[Callable[[int], None]]:
        """Hold room for a request in the block; yields ``take`` for its body's parts.

        Raises:
            RefusedError: ``QUEUE_FULL``.
        """
        taken = 0

        def take(amount: int) -> None:
            nonlocal taken
            self.bytes.take(producer, amount)
            taken += amount

        take(REQUEST_BYTES)
        try:
            yield take
        finally:
            self.bytes.give_back(producer, taken)


def _full() -> RefusedError:
    return RefusedError(
        "QUEUE_FULL",
        status=429,
        saw="Too many bytes or events are in flight, in all or from this producer.",
        why="They arrive faster than bodies are complete or the broker reports.",
        fix="Send the same request again later, and send more slowly.",
        retry_after_s=1,
    )


def _too_large(bytes_max: int) -> RefusedError:
    return RefusedError(
        "BODY_TOO_LARGE",
        status=413,
        saw=f"The body is larger than {bytes_max:,} bytes.",
        why="The service holds a body in memory until it has answered the request.",
        fix="Send less in one request.",
    )
