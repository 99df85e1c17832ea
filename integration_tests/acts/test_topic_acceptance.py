"""A topic that was made again is read from its start, beside what is known already."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.postgres_driver import query
from integration_tests.ledger_scenario import (
    PIPELINE,
    TOPIC,
    LedgerScenario,
    fake_fingerprint,
)
from tallyweir.sinks.postgres import audit, steering
from tallyweir.sinks.postgres.audit import explain, narrate, verify
from tallyweir.sinks.postgres.records.relay_feed import DEAD_LETTERS, RelayFeed
from tallyweir.sinks.postgres.steering import AcceptedTopic, accept_topics
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

_FORMER_ID = "former-id"
_FORMER = f"former:{_FORMER_ID}:{TOPIC}"
_BROKER = {
    TopicPartition(TOPIC, partition): BrokerPosition(
        topic_id="new-id", log_start_offset=0, log_end_offset=50
    )
    for partition in range(4)
}


@pytest.fixture
def home(
    connection: psycopg.Connection[TupleRow], scenario: LedgerScenario, home_dsn: str
) -> LedgerScenario:
    """A ledger of a topic that Kafka has another one of now."""
    assert scenario.sequence == 3
    connection.execute("ALTER TABLE departures SET SCHEMA public")
    connection.execute("SET search_path = public")
    connection.execute(
        "UPDATE tallyweir.partition_progress SET topic_id = %s", (_FORMER_ID,)
    )
    connection.commit()
    assert home_dsn
    return scenario


def _accept(dsn: str, *, dry_run: bool = False) -> AcceptedTopic:
    with psycopg.connect(dsn, options="-c search_path=public") as home:
        (accepted,) = accept_topics(
            home, PIPELINE, _BROKER, reason="made again", dry_run=dry_run
        )
    return accepted


def _failed(dsn: str) -> dict[str, tuple[str, ...]]:
    with psycopg.connect(dsn, options="-c search_path=public") as home:
        return {c.name: c.violations for c in verify(home, PIPELINE).failed}


def _dump(dsn: str) -> list[object]:
    return [
        query(dsn, f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4")
        for table in (
            "tallyweir.partition_progress",
            "tallyweir.batch_partition",
            "tallyweir.dead_letter",
            "tallyweir.relay_cursor",
            "tallyweir.act",
            "departures",
        )
    ]


def test_the_new_topic_is_read_from_its_start_with_all_that_is_kept(
    home: LedgerScenario, home_dsn: str
) -> None:
    """Its offsets are those of other events; what is known of the former ones stays."""
    assert {} == _failed(home_dsn)
    before = _dump(home_dsn)
    assert _accept(home_dsn, dry_run=True).former == _FORMER
    assert before == _dump(home_dsn)

    accepted = _accept(home_dsn)
    assert (accepted.former_id, accepted.topic_id) == (_FORMER_ID, "new-id")
    assert accepted.begins_at == dict.fromkeys(range(4), 0)
    assert accepted.rows == {"departures": 15}
    assert {} == _failed(home_dsn)
    with psycopg.connect(home_dsn) as connection:
        offsets = audit.read_next_offsets(connection, PIPELINE)
        assert offsets == dict.fromkeys(_BROKER, 0)
        assert audit.read_topic_ids(connection, PIPELINE) == {TOPIC: "new-id"}

    # The same offsets of the new topic, with another event at each.
    home.next_offsets = {}
    # The act's claim is none of a driver.
    home.epoch += 1
    home.claim()
    home.id_prefix = "new-"
    home.publish({0: "CXCD", 3: "CC"})
    assert {} == _failed(home_dsn)
    with psycopg.connect(home_dsn, options="-c search_path=public") as connection:
        told = [
            "\n".join(
                narrate(explain(connection, PIPELINE, one, fake_fingerprint), str)
            )
            for one in ("0-0", "new-0-0")
        ]
    assert f"{_FORMER}[0] offset 0 was committed to departures in batch 1" in told[0]
    assert f"{TOPIC}[0] offset 0 was committed to departures in batch 4" in told[1]
    # A row of either that is gone, or too many, is still found.
    for topic in (TOPIC, _FORMER):
        with psycopg.connect(home_dsn, options="-c search_path=public") as connection:
            gone = connection.execute(
                "DELETE FROM departures WHERE (kafka_topic, kafka_partition, "
                "kafka_offset) = (%s, 0, 0) RETURNING *",
                (topic,),
            ).fetchall()
        assert "append_outputs" in _failed(home_dsn)
        with psycopg.connect(home_dsn, options="-c search_path=public") as connection:
            connection.execute(
                "INSERT INTO departures VALUES (%s, %s, %s, %s, %s)", gone[0]
            )
    assert {} == _failed(home_dsn)


def test_messages_of_both_topics_are_told_apart(
    home: LedgerScenario, home_dsn: str
) -> None:
    """A consumer that drops repeats by ID must not drop what is none."""
    _accept(home_dsn)
    home.next_offsets = {}
    home.publish({0: "X"})
    feed = RelayFeed(home_dsn)
    assert feed.try_lock()
    letters = feed.read_dead_letters(
        PIPELINE,
        feed.read_cursor(PIPELINE, DEAD_LETTERS),
        messages_max=100,
        bytes_max=1_000_000,
    )
    feed.close()
    found = {(one.place.topic, one.source_topic, one.renewed_id) for one in letters}
    assert found == {(_FORMER, TOPIC, None), (TOPIC, TOPIC, "new-id")}


def test_a_relay_keeps_it_from_being_done(home: LedgerScenario, home_dsn: str) -> None:
    """What it has sent of a batch must not get another name."""
    assert home.sequence == 3
    feed = RelayFeed(home_dsn)
    assert feed.try_lock()
    with pytest.raises(RetryableError, match="RELAY_AT_WORK"):
        _accept(home_dsn)
    feed.close()
    with psycopg.connect(home_dsn) as connection:
        connection.execute(
            "INSERT INTO tallyweir.relay_cursor (pipeline, stream, sequence, "
            "kafka_topic, kafka_partition, kafka_offset, messages) SELECT pipeline, "
            "'dead_letter', sequence, '', 0, 0, 1 FROM tallyweir.dead_letter LIMIT 1"
        )
    with pytest.raises(RetryableError, match="rest of a batch's dead letters"):
        _accept(home_dsn)
    with psycopg.connect(home_dsn) as connection:
        connection.execute("UPDATE tallyweir.relay_cursor SET kafka_topic = 'p'")
        connection.execute(
            "INSERT INTO tallyweir.outbox (pipeline, sequence, kafka_topic, "
            "kafka_partition, kafka_offset, topic, value) VALUES (%s, 1, %s, 0, 0, "
            "'target', '')",
            (PIPELINE, TOPIC),
        )
    with pytest.raises(RetryableError, match="Messages of the outbox"):
        _accept(home_dsn)
    with psycopg.connect(home_dsn) as connection:
        connection.execute("DELETE FROM tallyweir.outbox")
    _accept(home_dsn)


def test_a_topic_that_is_the_same_is_not_accepted(
    home: LedgerScenario, home_dsn: str
) -> None:
    """A second call finds nothing to do, and snapshots from before are no way back."""
    assert home.sequence == 3
    with psycopg.connect(home_dsn, options="-c search_path=public") as connection:
        steering.take_snapshot(connection, PIPELINE, "before", reason="a test")
    _accept(home_dsn)
    with pytest.raises(ConfigurationError, match="TOPIC_UNCHANGED"):
        _accept(home_dsn)
    with (
        psycopg.connect(home_dsn, options="-c search_path=public") as connection,
        pytest.raises(ConfigurationError, match="RESTORE_PAST_ACT"),
    ):
        steering.restore(connection, PIPELINE, "before", _BROKER, reason="a test")
