"""What ``ingest`` calls accepted is in Kafka where it says, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from integration_tests.harness.ingest_service import (
    IngestService,
    await_true,
    page_view,
    places,
    read_stored,
)
from tallyweir.schemas.codec import decode, encode
from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.formats.framing import split
from tallyweir.services.ingest.api_keys import API_KEYS
from tallyweir.services.process.hashed_secrets import read_secrets, revoke_secret

CONTRACT = load_contract("page_view.v1")
WRITERS = {CONTRACT.schema_id: CONTRACT}
BATCH = "application/cloudevents-batch+json"
STRUCTURED = "application/cloudevents+json"


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str
) -> Iterator[IngestService]:
    """A service over three topics: the ID in a field, in ce_id, in another header."""
    started = IngestService(
        tmp_path_factory.mktemp("ingest"),
        kafka_bootstrap,
        ("event_id", "header:ce_id", "header:trace"),
    )
    started.start()
    yield started
    started.stop()


def cloud_event(event_id: str, **more: object) -> dict[str, object]:
    """A structured CloudEvent."""
    return {
        "specversion": "1.0",
        "id": event_id,
        "source": "/till",
        "type": "view",
        "data": page_view("any"),
        **more,
    }


def test_what_is_accepted_is_where_the_answer_says(service: IngestService) -> None:
    """In every form; what is refused is nowhere."""
    _, datum = split(
        encode(CONTRACT, page_view("shop:avro", viewed_at=1_700_000_000_000_000))
    )
    before = set(read_stored(service.bootstrap, service.topic))
    single = service.post(page_view("shop:single"))
    avro = service.post(datum, headers={"content-type": "avro/binary"})
    mixed = service.post(
        [page_view("shop:a"), page_view("till:b"), {}, page_view("shop:c")]
    )
    refused = service.post(page_view("till:d"))
    assert [r.status_code for r in (single, avro, mixed, refused)] == [
        *(202, 202, 207, 403)
    ]

    stored = read_stored(service.bootstrap, service.topic)
    told: dict[tuple[int, int], str] = {}
    for response in (single, avro, mixed):
        accepted = [e for e in response.json()["events"] if e["status"] == 202]
        ids = [entry["id"] for entry in accepted]
        told |= dict(zip(places(response), ids, strict=True))
    assert set(told) == set(stored) - before
    assert sorted(told.values()) == ["shop:a", "shop:avro", "shop:c", "shop:single"]
    for place, event_id in told.items():
        message = stored[place]
        assert message.key == event_id.encode()
        assert decode(message.value, WRITERS)["event_id"] == event_id
        assert message.headers == {}


def test_cloud_events_carry_their_identity_in_headers(service: IngestService) -> None:
    """Structured, in a batch and binary alike; the source is the producer's."""
    topic = service.topics[1]
    binary = {
        "ce-specversion": "1.0",
        "ce-id": "binary",
        "ce-source": "/till",
        "ce-type": "view",
    }
    answers = [
        service.post(
            cloud_event("one"), topic=topic, headers={"content-type": STRUCTURED}
        ),
        service.post(page_view("any"), topic=topic, headers=binary),
        service.post(
            [cloud_event("two"), cloud_event("three")],
            topic=topic,
            headers={"content-type": BATCH},
        ),
        service.post(
            page_view("any"), topic=topic, headers={"idempotency-key": "plain"}
        ),
    ]
    assert [answer.status_code for answer in answers] == [202] * 4
    stored = read_stored(service.bootstrap, topic)
    found = [stored[place] for answer in answers for place in places(answer)]
    assert [
        (message.headers["ce_source"], message.headers["ce_id"]) for message in found
    ] == [
        (b"shop:/till", b"one"),
        (b"shop:/till", b"binary"),
        (b"shop:/till", b"two"),
        (b"shop:/till", b"three"),
        (b"shop:idempotency-key", b"plain"),
    ]
    assert len({message.value for message in found}) == 1


def test_two_producers_with_one_id_do_not_collide(service: IngestService) -> None:
    """In each topic, what the pipeline reads as the ID differs."""
    other = service.make_key("till")
    await_true(
        lambda: service.post(page_view("till:1"), key=other).status_code == 202,
        "the new key counts",
    )
    by_field, by_ce_id, by_header = service.topics
    headers = {"idempotency-key": "same"}
    ids: dict[str, set[bytes]] = {}
    for topic, name in ((by_ce_id, "ce_source"), (by_header, "trace")):
        ids[topic] = set()
        for key in (service.key, other):
            answer = service.post(
                page_view("any"), topic=topic, key=key, headers=headers
            )
            (place,) = places(answer)
            message = read_stored(service.bootstrap, topic)[place]
            ids[topic].add(message.headers[name])
    assert [len(found) for found in ids.values()] == [2, 2]
    squatted = service.post(page_view("shop:1"), topic=by_field, key=other)
    assert (squatted.status_code, squatted.json()["code"]) == (403, "ID_OUT_OF_SCOPE")


def test_a_key_counts_from_its_making_to_its_revoking(service: IngestService) -> None:
    """The service reads the file again; a broken one changes nothing."""
    text = service.make_key("bank")

    def status() -> int:
        return service.post(page_view("bank:1"), key=text).status_code

    await_true(lambda: status() == 202, "the new key counts")
    good = service.keys_file.read_text()
    service.keys_file.write_text("{")
    await_true(lambda: service.logged("keys not read") is not None, "it complains")
    assert status() == 202
    service.keys_file.write_text(good)
    revoke_secret(service.keys_file, API_KEYS, text.split("_")[1])
    await_true(lambda: status() == 401, "the revoked key is refused")
    assert service.post(page_view("shop:1")).status_code == 202
    assert len(read_secrets(service.keys_file, API_KEYS)) >= 2


def test_the_pages_for_people_and_machines(service: IngestService) -> None:
    """No page shows a topic to who has no key, and none needs another host."""
    assert service.get("/livez").status_code == 200
    page = service.get("/docs")
    assert page.status_code == 200
    assert "http" not in page.text.replace("http-equiv", "")
    plain = service.get("/openapi.json").text
    assert service.topic not in plain + page.text
    described = service.get("/openapi.json", authorization=f"Bearer {service.key}")
    assert f"/v1/events/{service.topic}" in described.json()["paths"]
    assert service.post(page_view("shop:m")).status_code == 202
    metrics = service.get("/metrics").text
    outcome = f'outcome="accepted",topic="{service.topic}"'
    assert f"tallyweir_ingest_events_total{{{outcome}}}" in metrics
    assert "tallyweir_ingest_ready 1.0" in metrics


def test_neither_logs_nor_answers_show_what_was_sent(service: IngestService) -> None:
    """Keys and payloads are nobody else's business."""
    canary = "canary-5f21"
    service.post(page_view(f"shop:{canary}", page=canary))
    service.post(b'{"' + canary.encode(), headers={"ce-id": canary})
    answer = service.post(page_view("shop:1"), key=f"tw_{canary}")
    assert canary not in answer.text
    shown = json.dumps(service.log) + service.get("/metrics").text
    assert canary not in shown
    assert service.key.split("_")[2] not in shown
