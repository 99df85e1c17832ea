"""One event means the same in every form that it may come in."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tallyweir.schemas.formats.framing import split
from tallyweir.services.ingest.event_forms import EVENTS_MAX, ReadEvents, read_events
from tallyweir.services.ingest.request import RequestHead
from tallyweir.services.ingest.scoped_ids import NamedEvent
from tallyweir.services.ingest.served_topics import ServedTopic, read_served_topics
from tallyweir.services.ingest.tests.served import BY_CE_ID, BY_FIELD, page_view
from tallyweir.services.process.refusals import RefusedError

JSON = "application/json"
AVRO = "avro/binary"
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
KEY = "idempotency-key"
ENVELOPE = {"specversion": "1.0", "id": "7", "source": "/till", "type": "view"}
CE_HEADERS = {f"ce-{name}": value for name, value in ENVELOPE.items()}


def read(
    body: object,
    media_type: str = JSON,
    headers: dict[str, str] | None = None,
    topic: ServedTopic = BY_FIELD,
) -> ReadEvents:
    """The events of a request."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    listed = {"content-type": media_type, **(headers or {})}
    head = RequestHead.read(
        [(name.encode(), value.encode()) for name, value in listed.items()]
    )
    return read_events(topic, "shop:", head, head.media_type(), raw)


def only(found: ReadEvents) -> NamedEvent:
    """The one event of a body that is no batch."""
    assert not found.is_batch
    (event,) = found.events
    assert isinstance(event, NamedEvent)
    return event


def refused(
    body: object, media_type: str = JSON, headers: dict[str, str] | None = None
) -> str:
    """The code that the body is refused with."""
    with pytest.raises(RefusedError) as caught:
        read(body, media_type, headers)
    return caught.value.code


def test_json_avro_and_cloud_events_give_the_same_message() -> None:
    """Payload and key are equal to the byte, whatever the form."""
    plain = only(read(page_view()))
    _, datum = split(plain.payload)
    encoded = {**ENVELOPE, "data_base64": base64.b64encode(datum).decode()}
    events = [
        only(read(datum, AVRO)),
        only(read(page_view(), headers=CE_HEADERS)),
        only(read(datum, AVRO, CE_HEADERS)),
        only(read({**ENVELOPE, "data": page_view()}, STRUCTURED)),
        only(read({**encoded, "datacontenttype": AVRO}, STRUCTURED)),
        only(
            read(
                {
                    **ENVELOPE,
                    "data_base64": base64.b64encode(
                        json.dumps(page_view()).encode()
                    ).decode(),
                },
                STRUCTURED,
            )
        ),
    ]
    assert {(event.payload, event.key) for event in events} == {
        (plain.payload, plain.key)
    }
    assert {tuple(event.headers or []) for event in events[1:]} == {
        tuple(events[1].headers or [])
    }


def test_a_clumsy_encoders_avro_becomes_the_canonical_one() -> None:
    """So that a repeat by another encoder is no conflict."""
    plain = only(read(page_view()))
    _, datum = split(plain.payload)
    assert datum[0] == 2 * len("shop:1")
    padded = bytes([datum[0] | 0x80, 0x00]) + datum[1:]
    assert only(read(padded, AVRO)).payload == plain.payload


@pytest.mark.parametrize("body", [b"", b"\0", b"x" * 50, b"\xff" * 30])
def test_what_is_no_datum_is_refused(body: bytes) -> None:
    """Nor is one with a byte too many."""
    assert refused(body, AVRO) == "RECORD_MISFIT"
    _, datum = split(only(read(page_view())).payload)
    assert refused(datum + b"\0", AVRO) == "RECORD_MISFIT"


def test_each_event_of_an_array_has_its_own_fate() -> None:
    """In the order of the body."""
    found = read([page_view("shop:1"), page_view("till:1"), 5, page_view("shop:2")])
    assert found.is_batch
    assert [
        event.event_id if isinstance(event, NamedEvent) else event.code
        for event in found.events
    ] == ["shop:1", "ID_OUT_OF_SCOPE", "RECORD_MISFIT", "shop:2"]


def test_each_cloud_event_of_a_batch_has_its_own_fate() -> None:
    """A missing ID is never made up."""
    nameless = {name: value for name, value in ENVELOPE.items() if name != "id"}
    data = {"data": page_view()}
    found = read(
        [{**ENVELOPE, **data}, {**nameless, **data}, {}, 5, ENVELOPE],
        BATCH,
        topic=BY_CE_ID,
    )
    assert [
        event.event_id if isinstance(event, NamedEvent) else event.code
        for event in found.events
    ] == ["7", "ID_MISSING", "ID_MISSING", "CLOUDEVENT_MALFORMED", "RECORD_MISFIT"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"id": ""}, "ID_MISSING"),
        ({"id": None}, "ID_MISSING"),
        ({"source": None}, "ID_MISSING"),
        ({"id": 7}, "CLOUDEVENT_MALFORMED"),
        ({"id": ["7"]}, "CLOUDEVENT_MALFORMED"),
        ({"type": None}, "CLOUDEVENT_MALFORMED"),
        ({"specversion": None}, "CLOUDEVENT_MALFORMED"),
        ({"specversion": "0.3"}, "CLOUDEVENT_MALFORMED"),
        ({"time": "noon"}, "CLOUDEVENT_MALFORMED"),
        ({"time": "2026-11-21T10:15:00"}, "CLOUDEVENT_MALFORMED"),
        ({"time": 5}, "CLOUDEVENT_MALFORMED"),
        ({"Bad-Name": "x"}, "CLOUDEVENT_MALFORMED"),
        ({"nested": {}}, "CLOUDEVENT_MALFORMED"),
        ({"long": "x" * 1_025}, "CLOUDEVENT_MALFORMED"),
        ({"bell": "\7"}, "CLOUDEVENT_MALFORMED"),
        ({"data_base64": "AA=="}, "CLOUDEVENT_MALFORMED"),
        ({"data": None, "data_base64": "?"}, "CLOUDEVENT_MALFORMED"),
        ({f"x{number}": "1" for number in range(30)}, "CLOUDEVENT_MALFORMED"),
    ],
)
def test_each_mistake_in_an_envelope_is_refused(
    change: dict[str, object], code: str
) -> None:
    """With the code that tells a missing ID from the rest."""
    event = {**ENVELOPE, "data": page_view(), **change}
    if event["data"] is None:
        del event["data"]
    assert refused(event, STRUCTURED) == code


def test_an_attribute_that_is_null_is_not_there() -> None:
    """As CloudEvents' JSON format says."""
    envelope = {**ENVELOPE, "subject": None, "time": None, "data_base64": None}
    event = only(read({**envelope, "data": page_view()}, STRUCTURED))
    assert {name for name, _ in event.headers or []} == {
        "ce_specversion",
        "ce_id",
        "ce_source",
        "ce_type",
        "content-type",
    }


def test_headers_of_binary_mode_are_percent_encoded() -> None:
    """And must decode to UTF-8 without control characters."""
    event = only(
        read(page_view(), headers={**CE_HEADERS, "ce-id": "caf%C3%A9"}, topic=BY_CE_ID)
    )
    assert event.event_id == "caf\u00e9"
    for value in ("%FF", "%00", "a%0Ab"):
        headers = {**CE_HEADERS, "ce-id": value}
        assert refused(page_view(), headers=headers) == "CLOUDEVENT_MALFORMED"


def test_headers_of_one_event_do_not_fit_an_array() -> None:
    """Neither a CloudEvent's nor an Idempotency-Key."""
    assert refused([page_view()], headers=CE_HEADERS) == "CLOUDEVENT_MALFORMED"
    assert refused([page_view()], headers={KEY: "1"}) == "ID_MISMATCH"


@pytest.mark.parametrize("body", [[], {}, "x", None])
def test_a_batch_is_an_array_of_events(body: object) -> None:
    """Not an empty one."""
    assert refused(body, BATCH) == "BATCH_MALFORMED"
    assert refused([]) == "BATCH_MALFORMED"


def test_a_batch_has_a_largest_size() -> None:
    """The limit is inclusive."""
    assert len(read([5] * EVENTS_MAX).events) == EVENTS_MAX
    assert refused([5] * (EVENTS_MAX + 1)) == "BATCH_TOO_LARGE"


@pytest.mark.parametrize("key", ['"abc"', "abc"])
def test_an_idempotency_key_may_be_quoted(key: str) -> None:
    """As its draft standard writes it; the quotes are not part of the ID."""
    event = only(read(page_view(), headers={KEY: key}, topic=BY_CE_ID))
    assert event.event_id == "abc"


@pytest.mark.parametrize("key", ["", '""', "\u00e4", "a\tb"])
def test_an_idempotency_key_is_plain_text(key: str) -> None:
    """Headers have no agreed encoding beyond ASCII."""
    assert refused(page_view(), headers={KEY: key}) == "ID_MALFORMED"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ([(b"content-type", b"text/plain")], "MEDIA_TYPE_UNKNOWN"),
        (
            [(b"content-type", b"application/json; charset=utf-16")],
            "MEDIA_TYPE_UNKNOWN",
        ),
        ([], "MEDIA_TYPE_UNKNOWN"),
        ([(b"content-encoding", b"gzip")], "CONTENT_ENCODED"),
        ([(b"content-type", b"application/json")] * 2, "HEADER_REPEATED"),
        ([(b"ce-id", b"1"), (b"ce-id", b"1")], "HEADER_REPEATED"),
        ([(b"idempotency-key", b"1")] * 2, "HEADER_REPEATED"),
    ],
)
def test_headers_that_could_mean_two_things_are_refused(
    headers: list[tuple[bytes, bytes]], code: str
) -> None:
    """Also those that mean nothing here."""
    with pytest.raises(RefusedError) as caught:
        RequestHead.read(headers).media_type()
    assert caught.value.code == code


def test_content_types_are_read_as_http_writes_them() -> None:
    """Case and the charset of UTF-8 do not matter."""
    for value in (b"Application/JSON", b'application/json; charset="UTF-8"'):
        assert RequestHead.read([(b"content-type", value)]).media_type() == JSON


def test_a_message_of_protobuf_is_taken_as_it_is_and_as_json(tmp_path: Path) -> None:
    """JSON may leave out what has a default; a damaged message is refused."""
    (tmp_path / "m.proto").write_text(
        'syntax = "proto3"; message M { string id = 1; int32 n = 2; int32 z = 3; }'
    )
    file = tmp_path / "m.yaml"
    file.write_text(
        "pipeline: m\nsource: {topic: m, format: protobuf, schema: m.proto#M, "
        "event_id: id}\n"
    )
    topic = read_served_topics([file])["m"]
    as_json = only(read({"id": "shop:1", "n": 5}, topic=topic))
    media_type = topic.contract.format.media_type
    as_message = only(read(b"\x10\x05\x0a\x06shop:1", media_type, topic=topic))
    assert as_json.payload == as_message.payload
    with pytest.raises(RefusedError):
        read(b"\x10\x05\x0a\x06shop", media_type, topic=topic)
