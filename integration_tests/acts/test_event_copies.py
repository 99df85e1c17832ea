"""Who has a token sees what the record of every copy of an event holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from integration_tests.harness.monitor_service import running_monitor
from integration_tests.harness.readings import Sent
from integration_tests.harness.written_topic import WrittenTopic
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import load_contract
from tallyweir.services.monitor.tokens import PAGE_TOKENS, Role, make_token
from tallyweir.services.process.hashed_secrets import add_secret
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.protocol.offsets import TopicPartition

_CONTRACT = """{"type": "record", "name": "Order", "fields": [
  {"name": "event_id", "type": "string"}, {"name": "amount", "type": "int"}]}"""


@dataclass(frozen=True, kw_only=True)
class _Watched:
    """A monitor of a pipeline whose topic still has its records."""

    client: httpx.Client
    token: str
    topic: str

    def copies(self, event_id: str, token: str | None = None) -> httpx.Response:
        """Ask for the copies of an event."""
        return self.client.get(
            f"/api/pipelines/{PIPELINE}/copies",
            params={"event_id": event_id},
            headers={"authorization": f"Bearer {token}"} if token else {},
        )

    def found(self, event_id: str) -> list[dict[str, Any]]:
        """Return the copies, as who may see them."""
        answer = self.copies(event_id, self.token)
        assert answer.status_code == 200, answer.text
        return list(answer.json())


@pytest.fixture
def watched(
    home_dsn: str,
    kafka_bootstrap: str,
    topic: str,
    scenario: LedgerScenario,
    tmp_path: Path,
) -> Iterator[_Watched]:
    """A committed event with a repeat, and a dead letter, of a real topic."""
    connection = scenario.connection
    (tmp_path / "order.v1.avsc").write_text(_CONTRACT)
    contract = load_contract(str(tmp_path / "order.v1.avsc"))
    event = encode(contract, {"event_id": "0-0", "amount": 70})
    log = WrittenTopic(kafka_bootstrap, topic)
    log.create(1)
    log.send(
        [
            Sent(value=event, key=b"k", headers=[("trace", b"abc")]),
            Sent(value=event, key=b"k", headers=[("trace", b"abc")]),
            Sent(value=b"\xbe\xef"),
        ]
    )
    broker, _ = KafkaAdmin(kafka_bootstrap, topic).read_there()
    assert broker is not None
    source = {"topic": topic, "schema": "order.v1.avsc"}
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = "
        "jsonb_set(definition, '{source}', definition -> 'source' || %s)",
        (Jsonb(source),),
    )
    connection.execute(
        "UPDATE tallyweir.partition_progress SET topic = %s, topic_id = %s "
        "WHERE partition = 0",
        (topic, broker[TopicPartition(topic, 0)].topic_id),
    )
    connection.execute("UPDATE departures SET kafka_topic = %s", (topic,))
    connection.execute(
        "UPDATE tallyweir.batch_partition SET topic = %s WHERE partition = 0", (topic,)
    )
    connection.execute("DELETE FROM tallyweir.duplicate_event")
    connection.execute(
        "INSERT INTO tallyweir.duplicate_event (pipeline, kafka_topic, "
        "kafka_partition, kafka_offset, sequence, event_id) "
        "VALUES (%s, %s, 0, 1, 1, '0-0')",
        (PIPELINE, topic),
    )
    connection.commit()
    assert scenario.sequence == 3
    file = tmp_path / "tokens.json"
    token, text = make_token(name="bob", role=Role.VIEWER, not_after=None)
    add_secret(file, PAGE_TOKENS, token)
    with running_monitor(
        home_dsn,
        kafka_bootstrap,
        *("--tokens", str(file)),
        *("--contracts", str(tmp_path)),
    ) as client:
        yield _Watched(client=client, token=text, topic=topic)


def test_every_copy_has_what_kafka_still_holds(watched: _Watched) -> None:
    """Decoded by the pipeline's contract, with key and headers."""
    copies = watched.found("0-0")
    assert copies
    for one in copies:
        assert one["topic"] == watched.topic
        fields = {field["name"]: field["value"] for field in one["decoded"]["fields"]}
        assert fields["amount"] == "70"
        assert one["key_hex"] == b"k".hex()
        assert one["headers"] == [["trace", "abc"]]


def test_without_a_token_nothing_of_a_record_is_shown(watched: _Watched) -> None:
    """Neither here nor among what is told of the event."""
    refused = watched.copies("0-0")
    assert refused.status_code == 401
    assert "payload_hex" not in refused.text
    told = watched.client.get(
        f"/api/pipelines/{PIPELINE}/why", params={"event_id": "0-11"}
    )
    assert told.json()["is_known"]
    assert "dead" not in told.text.replace("dead letter", "")


def test_what_became_no_result_is_shown_from_the_home(watched: _Watched) -> None:
    """Its topic is not there at all."""
    (letter,) = watched.found("0-11")
    assert letter["fates"] == ["dead"]
    assert letter["payload_hex"] == "dead"
    assert letter["decoded"]["problem"].startswith("BAD_MAGIC")
    assert letter["headers"] is None


def test_a_topic_made_again_lends_no_record(
    watched: _Watched, connection: psycopg.Connection[TupleRow]
) -> None:
    """What lies at the place now is another topic's."""
    connection.execute("UPDATE tallyweir.partition_progress SET topic_id = 'former'")
    connection.commit()
    copies = watched.found("0-0")
    assert copies
    for one in copies:
        assert not one["is_there"]
        assert "payload_hex" not in one


def test_an_id_that_is_not_known_has_no_copies(watched: _Watched) -> None:
    """An empty list, and no error."""
    assert watched.found("nobody") == []
