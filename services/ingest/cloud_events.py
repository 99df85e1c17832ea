"""CloudEvents over HTTP: structured, batched, and binary in the request's headers.

The library checks the attributes and writes Kafka's headers. It would fill in missing
attributes, above all the ID. So this module requires them first: an ID that changes at
each retry identifies nothing.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Mapping
from urllib.parse import unquote

from cloudevents.core.bindings import kafka
from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from tallyweir.services.process.refusals import RefusedError

EXTENSIONS_MAX = 16
ATTRIBUTE_BYTES_MAX = 1_024

_NAME = re.compile(r"[a-z0-9]{1,40}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_REQUIRED = ("specversion", "id", "source", "type")
_OPTIONAL = frozenset({"datacontenttype", "dataschema", "subject", "time"})

Attributes = dict[str, object]


def attributes_of_headers(headers: Mapping[str, str]) -> Attributes:
    """Read the attributes of binary mode from headers, named without their ``ce-``.

    Raises:
        RefusedError: ``CLOUDEVENT_MALFORMED`` or ``ID_MISSING``.
    """
    try:
        decoded = {
            name: unquote(value, errors="strict") for name, value in headers.items()
        }
    except UnicodeDecodeError as exc:
        raise _malformed("a ce- header is not percent-encoded UTF-8") from exc
    return _check(dict(decoded))


def take_structured(event: object) -> tuple[Attributes, object]:
    """Take a structured CloudEvent apart into its attributes and its data.

    Returns:
        The attributes, and the data: a JSON value, or bytes for ``data_base64``.

    Raises:
        RefusedError: ``CLOUDEVENT_MALFORMED`` or ``ID_MISSING``.
    """
    if not isinstance(event, dict):
        raise _malformed("it is not a JSON object")
    attributes = dict(event)
    data = attributes.pop("data", None)
    encoded = attributes.pop("data_base64", None)
    if encoded is not None:
        if data is not None:
            raise _malformed("it has data and data_base64")
        try:
            data = base64.b64decode(str(encoded), validate=True)
        except ValueError as exc:
            raise _malformed("data_base64 is not base64") from exc
    # An attribute that is null counts as missing (JSON format, 2.2).
    present = {name: value for name, value in attributes.items() if value is not None}
    return _check(present), data


def _check(attributes: Attributes) -> Attributes:
    for name in ("id", "source"):
        if not attributes.get(name):
            raise RefusedError(
                "ID_MISSING",
                status=422,
                saw=f"The CloudEvent has no {name}.",
                why="Source and ID identify an event, even when it arrives twice.",
                fix="Send both, unchanged at every retry.",
            )
    for name in _REQUIRED:
        if name not in attributes:
            raise _malformed(f"{name} is missing")
    if len(attributes) > len(_REQUIRED) + len(_OPTIONAL) + EXTENSIONS_MAX:
        raise _malformed(f"it has more than {EXTENSIONS_MAX} extensions")
    for name, value in attributes.items():
        _check_attribute(name, value)
    try:
        if "time" in attributes:
            attributes["time"] = dt.datetime.fromisoformat(str(attributes["time"]))
        CloudEvent(dict(attributes))
    except (BaseCloudEventException, ValueError, OverflowError) as exc:
        shown = " ".join(str(exc).split())[:200]
        raise _malformed(shown or "time is not a timestamp") from exc
    return attributes


def _check_attribute(name: str, value: object) -> None:
    if not _NAME.fullmatch(name):
        raise _malformed("an attribute's name is not 1 to 40 small letters and digits")
    if isinstance(value, dict | list | float):
        raise _malformed(f"{name} is not text, a whole number or a boolean")
    text = str(value)
    if len(text.encode()) > ATTRIBUTE_BYTES_MAX:
        raise _malformed(f"{name} is longer than {ATTRIBUTE_BYTES_MAX} bytes")
    if has_control_characters(text):
        raise _malformed(f"{name} holds control characters")


def has_control_characters(text: str) -> bool:
    """Whether a text holds characters that CloudEvents, logs or Postgres refuse."""
    return _CONTROL.search(text) is not None


def kafka_headers(
    attributes: Mapping[str, object], media_type: str
) -> dict[str, bytes]:
    """Write an event's attributes as Kafka headers, with the media type of its data."""
    event = CloudEvent({**attributes, "datacontenttype": media_type}, b"")
    if "time" not in attributes:
        # The library fills in the time of arrival as the event's time.
        event.get_attributes().pop("time", None)
    message = kafka.to_binary(event, JSONFormat(), key_mapper=lambda _: None)
    return dict(message.headers)


def _malformed(what: str) -> RefusedError:
    return RefusedError(
        "CLOUDEVENT_MALFORMED",
        status=400,
        saw=f"The event is not a valid CloudEvent: {what}.",
        why="Consumers could not read the event.",
        fix="Correct the event; it must follow the CloudEvents 1.0 specification.",
    )
