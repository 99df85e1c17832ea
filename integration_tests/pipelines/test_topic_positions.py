"""Where a topic ends, for who reads it now and for who waits for all of it."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime

import psycopg
import pytest
from typer.testing import CliRunner

from integration_tests.harness.readings import Sent
from integration_tests.harness.written_topic import WrittenTopic
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.services.cli.app import build_app
from tallyweir.services.kafka.open_transactions import find_held_back
from tallyweir.services.monitor.watcher import summary_json
from tallyweir.services.process.endpoints import KAFKA_VARIABLE
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres.audit import read_overview
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.settings import HOME_DSN_VARIABLE


def test_an_open_transaction_is_before_the_high_watermark_and_behind_the_stable_end(
    kafka_bootstrap: str,
) -> None:
    """Who waits until everything is read may not ask for the stable end."""
    topic = WrittenTopic(kafka_bootstrap, f"positions-{uuid.uuid4().hex[:12]}")
    topic.create(1)
    admin = KafkaAdmin(kafka_bootstrap, topic.name)
    place = TopicPartition(topic.name, 0)
    topic.send([Sent(value=b"a", fate="?"), Sent(value=b"b", fate="?")])
    with topic.open_transaction([Sent(value=b"c", fate="?")]):
        positions = admin.read_positions()
        assert positions[place].log_end_offset == 2
        assert positions[place].held_back == 1
        (held,) = find_held_back(kafka_bootstrap, positions)
        assert (held.place, held.stable_offset, held.offsets) == (place, 2, 1)
        (by,) = held.transactions
        assert by.transactional_id == f"test-{topic.name}"
        assert abs((datetime.now(UTC) - by.began_at).total_seconds()) < 60
        assert f"of the transactional id 'test-{topic.name}'" in held.told()
    positions = admin.read_positions()
    assert positions[place].held_back == 0
    assert find_held_back(kafka_bootstrap, positions) == ()


def test_a_missing_topic_leaves_the_positions_of_the_others(
    kafka_bootstrap: str,
) -> None:
    """A page of many pipelines shows all but the one whose topic is gone."""
    names = [f"positions-{uuid.uuid4().hex[:12]}" for _ in range(4)]
    for name in names[:2]:
        WrittenTopic(kafka_bootstrap, name).create(2)
    admin = KafkaAdmin(kafka_bootstrap, *names)
    positions, missing = admin.read_there()
    assert positions is not None
    assert set(positions) == {
        TopicPartition(name, number) for name in names[:2] for number in range(2)
    }
    assert sorted(names[2:]) == sorted(
        name for name in names for error in missing if f"topic {name}." in error.saw
    )
    with pytest.raises(ConfigurationError, match="TOPIC_MISSING"):
        admin.read_positions()


def test_commands_tell_what_waits_behind_an_open_transaction(
    kafka_bootstrap: str,
    home_dsn: str,
    topic: str,
    scenario: LedgerScenario,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a lag of 0 everything would seem to be read."""
    monkeypatch.setenv(HOME_DSN_VARIABLE, home_dsn)
    monkeypatch.setenv(KAFKA_VARIABLE, kafka_bootstrap)
    with psycopg.connect(home_dsn) as home:
        home.execute(
            "UPDATE tallyweir.pipeline SET definition = jsonb_set(definition, "
            "'{source,topic}', to_jsonb(%s::text))",
            (topic,),
        )
    assert scenario.sequence == 3
    written = WrittenTopic(kafka_bootstrap, topic)
    written.create(1)

    def said(*words: str) -> str:
        return CliRunner().invoke(build_app(), words).output

    with written.open_transaction([Sent(value=b"c", fate="?")]):
        waits = (
            "1 offsets of " + topic + "[0] from 0 on wait behind an open transaction"
        )
        assert waits in said("status", PIPELINE)
        assert f"{waits}, of the transactional id 'test-{topic}'" in said(
            "why", PIPELINE, "never"
        )
        (held,) = json.loads(said("status", PIPELINE, "--json"))["held_back"]
        assert (held["partition"], held["offsets"]) == (0, 1)
        with psycopg.connect(home_dsn) as home:
            (found,) = read_overview(home)
        shown = summary_json(found, KafkaAdmin(kafka_bootstrap, topic).read_positions())
        assert (shown["lag"], shown["held_back"]) == (0, 1)
        assert "1 offsets wait in Kafka behind an open" in str(shown["cause"])
