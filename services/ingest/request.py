"""What the service takes of a request: the headers that matter, and a bounded body.

The limits of bodies and of events in flight count bytes as they arrive, because a
chunked body declares no length. No request can move them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from starlette.types import Receive

from tallyweir.schemas.formats.known_formats import FORMATS
from tallyweir.services.process.refusals import RefusedError

JSON = "application/json"
CLOUD_EVENT = "application/cloudevents+json"
CLOUD_EVENT_BATCH = "application/cloudevents-batch+json"
_JSON_TYPES = frozenset({JSON, CLOUD_EVENT, CLOUD_EVENT_BATCH})

_CE = b"ce-"
_ONCE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"idempotency-key",
    }
)


@dataclass(slots=True)
class RequestHead:
    """The headers that matter; each may occur once.

    Attributes:
        values: The headers by name, as they arrived.
        cloud_event: The attributes of a CloudEvent in binary mode, by name.
        repeated: A header that occurs twice, or None.
    """

    values: dict[bytes, bytes] = field(default_factory=dict)
    cloud_event: dict[str, str] = field(default_factory=dict)
    repeated: bytes | None = None

    @classmethod
    def read(cls, headers: Iterable[tuple[bytes, bytes]]) -> RequestHead:
        """Pick the headers that matter; no headers make this method raise."""
        head = cls()
        for name, value in headers:
            if name in _ONCE:
                if name in head.values:
                    head.repeated = name
                head.values[name] = value
            elif name.startswith(_CE):
                attribute = name[len(_CE) :].decode("latin-1")
                if attribute in head.cloud_event:
                    head.repeated = name
                head.cloud_event[attribute] = value.decode("latin-1")
        return head

    @property
    def authorization(self) -> bytes | None:
        """The credentials, unless the header occurs twice."""
        if self.repeated == b"authorization":
            return None
        return self.values.get(b"authorization")

    @property
    def content_length(self) -> int | None:
        """The body's declared size; the server has checked that it is a number."""
        length = self.values.get(b"content-length")
        return None if length is None else int(length)

    def media_type(self) -> str:
        """Name the body's form: JSON, CloudEvents, or the media type of a format.

        Raises:
            RefusedError: ``HEADER_REPEATED``, ``CONTENT_ENCODED`` or
                ``MEDIA_TYPE_UNKNOWN``.
        """
        if self.repeated is not None:
            raise RefusedError(
                "HEADER_REPEATED",
                status=400,
                saw=f"The header {self.repeated[:40].decode('latin-1')} came twice.",
                why="Two programs could use different ones.",
                fix="Send it once.",
            )
        encoding = self.values.get(b"content-encoding", b"identity")
        if encoding.strip().lower() != b"identity":
            raise RefusedError(
                "CONTENT_ENCODED",
                status=415,
                saw="The body is compressed.",
                why="A small compressed body could expand to any size.",
                fix="Send it uncompressed.",
            )
        media_type = _media_type(self.values.get(b"content-type", b""))
        if media_type is None:
            raise unknown_media_type(*(one.media_type for one in FORMATS.values()))
        return media_type

    def idempotency_key(self) -> str | None:
        """The request's ``Idempotency-Key``, without the quotes it may have.

        Raises:
            RefusedError: ``ID_MALFORMED``.
        """
        raw = self.values.get(b"idempotency-key")
        if raw is None:
            return None
        text = raw.strip().decode("latin-1")
        if len(text) > 1 and text[0] == text[-1] == '"':
            text = text[1:-1]
        if not text or not text.isascii() or not text.isprintable():
            raise RefusedError(
                "ID_MALFORMED",
                status=422,
                saw="Idempotency-Key is empty or not printable ASCII.",
                why="The header is the event's ID, which every program must read in "
                "the same way.",
                fix="Use a short plain text, such as a UUID.",
            )
        return text


def unknown_media_type(*of_formats: str) -> RefusedError:
    """Refuse a body that is neither JSON nor a value of one of some formats."""
    return RefusedError(
        "MEDIA_TYPE_UNKNOWN",
        status=415,
        saw="The service does not read this content type.",
        why="The service never guesses what a body holds.",
        fix=f"Send one of {', '.join(sorted({*_JSON_TYPES, *of_formats}))}, in UTF-8.",
    )


@lru_cache(maxsize=64)
def _media_type(header: bytes) -> str | None:
    name, _, parameters = header.decode("latin-1").lower().partition(";")
    charset = parameters.replace(" ", "").replace('"', "")
    if charset not in {"", "charset=utf-8"}:
        return None
    media_type = name.strip()
    of_formats = {one.media_type for one in FORMATS.values()}
    return media_type if media_type in _JSON_TYPES | of_formats else None


BODY_BYTES_MAX = 1 << 20
#: The service gives up on a slower body, because it takes room from others.
BODY_TIMEOUT_S = 20.0
#: All bodies that are being read, or that have events waiting for their reports.
BYTES_IN_FLIGHT_MAX = 64 << 20
#: The room that a request takes in addition to its body.
REQUEST_BYTES = 8 << 10
EVENTS_IN_FLIGHT_MAX = 10_000


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
