"""Whatever dies, what was answered 202 is in Kafka, and a repeat is safe."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from integration_tests.harness.ingest_service import (
    IngestService,
    await_true,
    page_view,
    places,
    read_stored,
)
from tallyweir.schemas.codec import decode
from tallyweir.schemas.contract import load_contract
from tallyweir.services.local.embedded.kafka import EmbeddedKafka

CONTRACT = load_contract("page_view.v1")
SENDERS = 8

Accepted = dict[str, tuple[int, int]]


@pytest.fixture
def service(tmp_path: Path, kafka_bootstrap: str) -> Iterator[IngestService]:
    """A service of the test's own, which the test may kill."""
    started = IngestService(tmp_path, kafka_bootstrap)
    started.start()
    yield started
    if started.process.poll() is None:
        started.stop()


class Senders:
    """Threads that send events of their own until the service is gone."""

    def __init__(self, service: IngestService) -> None:
        self.service = service
        self.accepted: Accepted = {}
        self.refused: list[int] = []
        self.unanswered: list[str] = []
        self._has_many = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(number,))
            for number in range(SENDERS)
        ]
        for thread in self._threads:
            thread.start()

    def await_many(self) -> None:
        """Wait until many events were accepted."""
        assert self._has_many.wait(30)

    def join(self) -> None:
        """Wait until all have noticed."""
        for thread in self._threads:
            thread.join()

    def _send(self, number: int) -> None:
        with httpx.Client(timeout=30) as client:
            for count in range(100_000):
                event_id = f"shop:{number}-{count}"
                try:
                    answer = client.post(
                        self.service.url(f"/v1/events/{self.service.topic}"),
                        json=page_view(event_id),
                        headers={"authorization": f"Bearer {self.service.key}"},
                    )
                except httpx.TransportError:
                    self.unanswered.append(event_id)
                    return
                if answer.status_code == 202:
                    (self.accepted[event_id],) = places(answer)
                else:
                    self.refused.append(answer.status_code)
                if len(self.accepted) > 500:
                    self._has_many.set()


def check_accepted(service: IngestService, accepted: Accepted) -> set[str]:
    """See that each event is where it was said to be; return all IDs in Kafka."""
    stored = read_stored(service.bootstrap, service.topic)
    writers = {CONTRACT.schema_id: CONTRACT}
    ids = {
        place: str(decode(message.value, writers)["event_id"])
        for place, message in stored.items()
    }
    for event_id, place in accepted.items():
        assert ids.get(place) == event_id, f"{event_id} is not at {place}"
    return set(ids.values())


def test_what_a_killed_service_acknowledged_is_in_kafka(service: IngestService) -> None:
    """Kill -9 with requests in flight; what was not answered may be sent again."""
    senders = Senders(service)
    senders.await_many()
    service.kill()
    senders.join()
    assert senders.refused == []
    assert len(senders.unanswered) == SENDERS
    check_accepted(service, senders.accepted)

    service.start()
    again = [service.post(page_view(event_id)) for event_id in senders.unanswered]
    assert {answer.status_code for answer in again} == {202}
    assert check_accepted(service, senders.accepted) == {
        *senders.accepted,
        *senders.unanswered,
    }


def test_sigterm_answers_what_is_in_flight(service: IngestService) -> None:
    """Exit code 0; nothing is in Kafka that was neither answered nor unanswered."""
    senders = Senders(service)
    senders.await_many()
    assert service.stop() == 0
    senders.join()
    assert senders.refused == []
    found = check_accepted(service, senders.accepted)
    # Who was not answered found the door closed: his event was never taken.
    assert found == set(senders.accepted)
    drained = service.logged("drained")
    assert drained is not None
    assert drained["events_without_report"] == 0


def test_a_body_that_is_under_way_is_answered_before_the_end(
    service: IngestService,
) -> None:
    """A drain waits for requests that have begun."""
    has_begun = threading.Event()
    may_end = threading.Event()

    def body() -> Iterator[bytes]:
        yield b'{"event_id": "shop:slow", '
        has_begun.set()
        assert may_end.wait(30)
        yield (
            b'"user_id": 1, "page": "/", "country": "DE", '
            b'"viewed_at": "2026-11-21T10:15:00Z", "value": 1.5}'
        )

    def send() -> httpx.Response:
        return httpx.post(
            service.url(f"/v1/events/{service.topic}"),
            content=body(),
            headers={
                "authorization": f"Bearer {service.key}",
                "content-type": "application/json",
            },
            timeout=30,
        )

    def is_closed() -> bool:
        try:
            service.get("/livez")
        except httpx.TransportError:
            return True
        return False

    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(send)
        assert has_begun.wait(30)
        await_true(
            lambda: "in_flight_bytes 0.0" not in service.get("/metrics").text,
            "the request has arrived",
        )
        code = pool.submit(service.stop)
        await_true(is_closed, "nobody else is let in")
        with pytest.raises(subprocess.TimeoutExpired):
            service.process.wait(1.0)
        may_end.set()
        assert answer.result().status_code == 202
        assert code.result() == 0
    (place,) = places(answer.result())
    check_accepted(service, {"shop:slow": place})


@pytest.mark.long
def test_without_its_broker_it_answers_503_and_a_repeat_is_safe(
    tmp_path: Path,
) -> None:
    """An event whose outcome nobody knew is there once the broker and a repeat are."""
    kafka = EmbeddedKafka(tmp_path / "kafka")
    kafka.start()
    service = IngestService(tmp_path, kafka.bootstrap)
    try:
        service.start()
        assert service.post(page_view("shop:before")).status_code == 202
        kafka.stop()
        answer = service.post(page_view("shop:during"))
        assert (answer.status_code, answer.json()["code"]) == (503, "OUTCOME_UNKNOWN")
        assert int(answer.headers["retry-after"]) > 0
        await_true(lambda: service.get("/readyz").status_code == 503, "it is not ready")
        assert service.get("/livez").status_code == 200
        kafka.start()
        await_true(lambda: service.get("/readyz").status_code == 200, "it is ready")
        again = service.post(page_view("shop:during"))
        assert again.status_code == 202
        (place,) = places(again)
        found = check_accepted(service, {"shop:during": place})
        assert found == {"shop:before", "shop:during"}
        assert service.stop() == 0
    finally:
        if service.process.poll() is None:
            service.kill()
        kafka.stop()
