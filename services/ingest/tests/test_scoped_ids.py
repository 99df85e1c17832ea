"""No producer can name another one's event, and none is without an ID."""

from __future__ import annotations

import pytest

from tallyweir.schemas.codec import decode
from tallyweir.services.ingest.scoped_ids import ID_BYTES_MAX, NamedEvent, name_event
from tallyweir.services.ingest.served_topics import ServedTopic
from tallyweir.services.ingest.tests.served import (
    BY_CE_ID,
    BY_FIELD,
    BY_HEADER,
    PAGE_VIEW,
    page_view,
    serve,
)
from tallyweir.services.process.refusals import RefusedError


def cloud_event(event_id: str = "7", source: str = "/till") -> dict[str, object]:
    """Attributes of a CloudEvent."""
    return {"specversion": "1.0", "id": event_id, "source": source, "type": "view"}


def name(
    topic: ServedTopic,
    record: dict[str, object],
    *,
    prefix: str = "shop:",
    attributes: dict[str, object] | None = None,
    idempotency_key: str | None = None,
) -> NamedEvent:
    """The event, read and named."""
    return name_event(
        topic,
        prefix,
        topic.read_json(record),
        attributes=attributes,
        idempotency_key=idempotency_key,
    )


def refused(topic: ServedTopic, record: dict[str, object], **given: object) -> str:
    """The code that it is refused with."""
    with pytest.raises(RefusedError) as caught:
        name(topic, record, **given)  # type: ignore[arg-type]  # as in name
    return caught.value.code


def identity(topic: ServedTopic, event: NamedEvent) -> tuple[object, ...]:
    """What the pipeline reads: the first header of each name, or a field."""
    headers: dict[str, object] = {}
    for header, value in event.headers or []:
        headers.setdefault(header, value)
    if topic is BY_FIELD:
        record = decode(event.payload, {PAGE_VIEW.schema_id: PAGE_VIEW})
        return (record["event_id"],)
    if topic is BY_CE_ID:
        return headers["ce_source"], headers["ce_id"]
    return (headers["trace"],)


def test_a_field_holds_the_id_and_is_the_key() -> None:
    """As emit writes it: no header, and the key is the ID."""
    event = name(BY_FIELD, page_view("shop:1"))
    assert (event.event_id, event.key, event.headers) == ("shop:1", b"shop:1", None)
    assert identity(BY_FIELD, event) == ("shop:1",)


@pytest.mark.parametrize("stranger", ["till:1", "shop1", "Shop:1", " shop:1", "sho"])
def test_an_id_of_somebody_else_is_refused(stranger: str) -> None:
    """The prefix is compared to the byte."""
    assert refused(BY_FIELD, page_view(stranger)) == "ID_OUT_OF_SCOPE"


def test_who_has_a_topic_alone_needs_no_prefix() -> None:
    """The empty prefix begins every ID."""
    assert name(BY_FIELD, page_view("anything"), prefix="").event_id == "anything"


def test_an_absent_field_is_filled_in_from_the_idempotency_key() -> None:
    """With the prefix in front, so that it is in scope whatever it is."""
    event = name(BY_FIELD, page_view(None), idempotency_key="till:9")
    assert identity(BY_FIELD, event) == ("shop:till:9",)
    assert event.key == b"shop:till:9"


@pytest.mark.parametrize(("key", "fits"), [("1", True), ("shop:1", True), ("2", False)])
def test_an_idempotency_key_must_be_the_fields_id(key: str, *, fits: bool) -> None:
    """With the prefix or without; another one could make the event count twice."""
    if fits:
        assert name(BY_FIELD, page_view(), idempotency_key=key).event_id == "shop:1"
    else:
        assert refused(BY_FIELD, page_view(), idempotency_key=key) == "ID_MISMATCH"


@pytest.mark.parametrize("topic", [BY_FIELD, BY_CE_ID, BY_HEADER])
def test_an_event_without_an_id_is_refused(topic: ServedTopic) -> None:
    """Wherever the pipeline looks for it."""
    assert refused(topic, page_view(None) if topic is BY_FIELD else page_view()) == (
        "ID_MISSING"
    )


def test_an_empty_id_is_none() -> None:
    """Also where every prefix fits."""
    assert refused(BY_FIELD, page_view(""), prefix="") == "ID_MISSING"


@pytest.mark.parametrize(
    ("topic", "given"),
    [
        (BY_CE_ID, {"attributes": cloud_event()}),
        (BY_CE_ID, {"idempotency_key": "7"}),
        (BY_HEADER, {"idempotency_key": "7"}),
        (BY_HEADER, {"idempotency_key": "7", "attributes": cloud_event()}),
    ],
)
def test_the_same_words_of_two_producers_are_two_ids(
    topic: ServedTopic, given: dict[str, object]
) -> None:
    """Where a header holds the ID, the service scopes it."""
    ids = {
        identity(topic, name(topic, page_view(), prefix=prefix, **given))  # type: ignore[arg-type]  # as in name
        for prefix in ("shop:", "till:", "")
    }
    again = name(topic, page_view(), prefix="shop:", **given)  # type: ignore[arg-type]  # as in name
    assert len(ids) == 3
    assert identity(topic, again) in ids


def test_a_cloud_event_keeps_its_attributes() -> None:
    """Only the source changes; the library writes the headers."""
    event = name(BY_CE_ID, page_view(), attributes=cloud_event() | {"partner": "x"})
    assert dict(event.headers or []) == {
        "ce_specversion": b"1.0",
        "ce_id": b"7",
        "ce_source": b"shop:/till",
        "ce_type": b"view",
        "ce_partner": b"x",
        "content-type": b"avro/binary",
    }
    assert event.key == b"7"


def test_a_cloud_event_and_an_idempotency_key_must_agree() -> None:
    """Two IDs for one event are refused."""
    given = {"attributes": cloud_event()}
    assert refused(BY_CE_ID, page_view(), idempotency_key="8", **given) == "ID_MISMATCH"
    assert (
        name(
            BY_CE_ID, page_view(), idempotency_key="7", attributes=cloud_event()
        ).event_id
        == "7"
    )


def test_the_header_of_the_id_is_the_last_of_its_name() -> None:
    """The pipeline takes the last: no attribute may come after it."""
    topic = serve("header:ce_trace")
    attributes = cloud_event() | {"trace": "stranger"}
    event = name(topic, page_view(), idempotency_key="7", attributes=attributes)
    named = [value for name, value in event.headers or [] if name == "ce_trace"]
    assert named == [b"stranger", b"shop:7"]


@pytest.mark.parametrize(
    ("topic", "given", "code"),
    [
        (BY_FIELD, {"record": page_view("shop:" + "x" * 252)}, "ID_MALFORMED"),
        (
            BY_FIELD,
            {"record": page_view("shop:\u00e4" + "\u00e4" * 125)},
            "ID_MALFORMED",
        ),
        (BY_FIELD, {"record": page_view("shop:a\nb")}, "ID_MALFORMED"),
        (BY_CE_ID, {"attributes": cloud_event("x" * 257)}, "ID_MALFORMED"),
        (BY_CE_ID, {"attributes": cloud_event("7", "x" * 252)}, "ID_MALFORMED"),
        (BY_HEADER, {"idempotency_key": "x" * 252}, "ID_MALFORMED"),
    ],
)
def test_an_id_that_the_pipeline_would_put_aside_is_refused(
    topic: ServedTopic, given: dict[str, object], code: str
) -> None:
    """The limit counts bytes, with the prefix."""
    record = given.pop("record", page_view())
    assert refused(topic, record, **given) == code  # type: ignore[arg-type]  # a record


def test_the_longest_id_is_taken() -> None:
    """The limit is inclusive."""
    longest = "shop:".ljust(ID_BYTES_MAX, "x")
    assert name(BY_FIELD, page_view(longest)).event_id == longest


def test_an_event_that_is_not_its_contracts_is_refused() -> None:
    """The reason names the field."""
    with pytest.raises(RefusedError, match="field user_id: expected long") as caught:
        name(BY_FIELD, page_view() | {"user_id": "one"})
    assert (caught.value.code, caught.value.status) == ("RECORD_MISFIT", 422)
