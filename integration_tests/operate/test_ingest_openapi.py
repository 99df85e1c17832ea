"""Requests made from the OpenAPI document: no 500, and nothing lost or made up.

``TALLYWEIR_INGEST_REQUESTS`` sets how many are made (300; the release check makes
5,000).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case

from integration_tests.harness.ingest_service import (
    IngestService,
    page_view,
    places,
    read_stored,
)

REQUESTS = int(os.environ.get("TALLYWEIR_INGEST_REQUESTS", "300"))
JSON = "application/json"
PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str
) -> Iterator[IngestService]:
    """A service whose second topic has its IDs in the headers of CloudEvents."""
    started = IngestService(
        tmp_path_factory.mktemp("ingest"),
        kafka_bootstrap,
        ("event_id", "header:ce_id"),
    )
    started.start()
    yield started
    started.stop()


@pytest.mark.timeout(60 + REQUESTS)
def test_requests_of_the_document_meet_no_defect(service: IngestService) -> None:
    """Good and bad requests; every status is documented, and Kafka agrees with each."""
    authorization = {"authorization": f"Bearer {service.key}"}
    document = service.get("/openapi.json", **authorization).json()
    schema = schemathesis.openapi.from_dict(document)
    strategies = [
        schema[f"/v1/events/{topic}"]["POST"].as_strategy(generation_mode=mode)
        for topic in service.topics
        for mode in schemathesis.GenerationMode
    ]
    statuses: Counter[int] = Counter()
    told: dict[tuple[str, int, int], str] = {}
    before = {
        topic: set(read_stored(service.bootstrap, topic)) for topic in service.topics
    }

    @settings(
        max_examples=REQUESTS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(strategies))
    def send(case: Case[Any]) -> None:
        response = case.call(base_url=service.url(""), headers=authorization)
        status = response.status_code
        statuses[status] += 1
        assert status < 500, (status, response.text)
        assert str(status) in document["paths"][case.path]["post"]["responses"]
        answer = response.json()
        if status >= 300:
            assert response.headers["content-type"] == [PROBLEM]
            assert {"code", "saw", "why", "fix"} <= set(answer)
        for entry in answer.get("events", []):
            if entry["status"] == 202:
                place = entry["topic"], entry["partition"], entry["offset"]
                assert place not in told
                told[place] = entry["id"]

    send()
    assert statuses.total() >= REQUESTS * 0.9
    assert statuses[202] > 0, "no request was good: the document does not describe them"
    assert sum(statuses[status] for status in (400, 415, 422)) > 0, "none was bad"
    for topic in service.topics:
        stored = read_stored(service.bootstrap, topic)
        new = {place for place in stored if place not in before[topic]}
        assert new == {place[1:] for place in told if place[0] == topic}
        for place in new:
            assert stored[place].key == told[topic, *place].encode()


def test_the_document_describes_an_event_that_is_taken(service: IngestService) -> None:
    """Its own schema accepts what the service accepts."""
    document = service.get(
        "/openapi.json", authorization=f"Bearer {service.key}"
    ).json()
    body = document["paths"][f"/v1/events/{service.topic}"]["post"]["requestBody"]
    event = body["content"][JSON]["schema"]["oneOf"][0]
    assert set(event["required"]) == set(page_view("shop:1"))
    answer = service.post(page_view("shop:1"))
    assert len(places(answer)) == 1
