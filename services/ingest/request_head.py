"""The headers of a request that matter to the service."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

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
