"""The relay: every dead letter reaches Kafka, in order, repeats under the same ID."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter

import psycopg
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from integration_tests.harness.metrics_client import free_port, get
from integration_tests.harness.postgres_driver import query
from integration_tests.harness.relayed_home import (
    DEADLINE_S,
    RelayedHome,
    check_order,
    expected,
    read_committed,
    relay_once,
    relay_round,
    values,
    wait_for,
    without_repeats,
)
from integration_tests.harness.role_world import OWNER, role_world
from integration_tests.harness.started_relay import relay
from tallyweir.services.relay.service import MESSAGES_MAX, RelayMetrics, RelayService
from tallyweir.sinks.postgres.records.relay_feed import DEAD_LETTERS, RelayFeed
from tallyweir.sinks.postgres.schema.roles import RELAY


@pytest.fixture
def home(home_dsn: str, kafka_bootstrap: str) -> RelayedHome:
    """A home database without any batch, and its topic."""
    return RelayedHome(dsn=home_dsn, bootstrap=kafka_bootstrap)


def test_each_dead_letter_arrives_once_with_the_headers_of_connect(
    home: RelayedHome,
) -> None:
    """Key and payload are unchanged, and whatever Connect's tools read is there."""
    home.publish(2)
    failures, metrics = relay_once(home)
    assert [] == failures
    messages = home.read_dead_letters()
    assert expected(2) == values(messages)
    (one,) = (message for message in messages if message.value == b"1/1")
    assert (b"1", 1) == (one.key, one.partition)
    assert {
        "__connect.errors.topic": home.topic,
        "__connect.errors.partition": "1",
        "__connect.errors.offset": "1",
        "__connect.errors.connector.name": home.pipeline,
        "__connect.errors.stage": "VALUE_CONVERTER",
        "__connect.errors.exception.class.name": "MALFORMED",
        "__connect.errors.exception.message": "ended at byte 9: ß",
        "ce_specversion": "1.0",
        "ce_type": "tallyweir.dead_letter",
        "ce_source": f"/tallyweir/{home.installation}/{home.pipeline}",
        "ce_id": f"dead_letter/{home.topic}/1/1",
        "ce_time": "2026-01-02T03:04:05.678000+00:00",
    } == one.headers
    sent = metrics.messages.labels(home.pipeline, DEAD_LETTERS)
    assert 4 == sent._value.get()
    backlog = metrics.backlog.labels(home.pipeline, DEAD_LETTERS)
    assert 0 == backlog._value.get()


def test_a_second_round_sends_only_what_is_new(home: RelayedHome) -> None:
    """The cursor says what the broker has; another process goes on from it."""
    home.publish(2)
    relay_once(home)
    assert [] == relay_once(home)[0]
    home.publish(3)
    relay_once(home)
    messages = home.read_dead_letters()
    assert expected(5) == values(messages)
    check_order(messages)
    assert [(10,)] == query(home.dsn, "SELECT messages FROM tallyweir.relay_cursor")


def test_more_than_a_transaction_holds_is_sent_in_order(home: RelayedHome) -> None:
    """Chunks follow one another, in the middle of a batch too."""
    letters = MESSAGES_MAX // 2 + 50
    home.publish(letters)
    relay_once(home)
    messages = home.read_dead_letters()
    assert expected(letters) == values(messages)
    check_order(messages)


def test_keys_and_payloads_may_be_missing(home: RelayedHome) -> None:
    """A record without value is a dead letter too, and stays a tombstone."""
    home.publish(1)
    with psycopg.connect(home.dsn) as connection:
        connection.execute(
            "UPDATE tallyweir.dead_letter SET key = NULL, payload = NULL"
        )
    relay_once(home)
    messages = home.read_dead_letters()
    assert [(None, None)] * 2 == [(m.key, m.value) for m in messages]


def test_what_is_not_committed_everywhere_waits(home: RelayedHome) -> None:
    """A batch with a branch in doubt, and all behind it, is not visible yet."""
    home.publish(1)
    home.publish(1, branch="billing.0")
    home.publish(1)
    _, metrics = relay_once(home)
    assert expected(1) == values(home.read_dead_letters())
    assert {0: 1, 1: 1} == home.read_group()
    backlog = metrics.backlog.labels(home.pipeline, DEAD_LETTERS)
    assert 4 == backlog._value.get()
    home.commit_branches()
    relay_once(home)
    assert expected(3) == values(home.read_dead_letters())
    assert {0: 3, 1: 3} == home.read_group()


def test_the_topic_is_made_like_its_source_with_room_for_headers(
    home: RelayedHome,
) -> None:
    """A record as large as the source takes, plus headers, must still fit."""
    home.publish(0)
    size = 1_048_588 - 200
    with psycopg.connect(home.dsn) as connection:
        home.add_letter(connection, 0, 0, payload=os.urandom(size))
    assert [] == relay_once(home)[0]
    (message,) = home.read_dead_letters()
    assert size == len(message.value or b"")
    admin = AdminClient({"bootstrap.servers": home.bootstrap})
    topics = admin.list_topics(timeout=DEADLINE_S).topics
    assert 2 == len(topics[f"{home.topic}.dlq"].partitions)


def test_a_topic_that_refuses_a_message_stops_its_pipeline_only(
    home: RelayedHome,
) -> None:
    """Nothing is skipped; the others go on, and so does this one once it fits."""
    admin = AdminClient({"bootstrap.servers": home.bootstrap})
    topic = f"{home.topic}.dlq"
    admin.create_topics([NewTopic(topic, 2, 1, config={"max.message.bytes": "1000"})])[
        topic
    ].result(DEADLINE_S)
    home.publish(1)
    with psycopg.connect(home.dsn) as connection:
        home.add_letter(connection, 0, 1, payload=os.urandom(2000))
        home.add_letter(connection, 0, 2, payload=b"behind")
    other = RelayedHome(dsn=home.dsn, bootstrap=home.bootstrap)
    other.publish(1)
    metrics = RelayMetrics()
    service = RelayService(home.dsn, home.bootstrap, every_s=1, metrics=metrics)
    try:
        assert ["RELAY_MESSAGE_REFUSED"] == service.run_round()
        assert [] == home.read_dead_letters()
        assert expected(1) == values(other.read_dead_letters())
        assert 1 == metrics.failures.labels("RELAY_MESSAGE_REFUSED")._value.get()
        _let_pass(admin, topic, "100000")
        # The same relay goes on, with a producer that knows nothing of the failure.
        assert [] == service.run_round()
    finally:
        service.run_once()
    assert 4 == len(home.read_dead_letters())


def _let_pass(admin: AdminClient, topic: str, size: str) -> None:
    enough = ConfigEntry(
        "max.message.bytes", size, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[enough])
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


def test_a_relay_killed_between_send_and_cursor_repeats_under_the_same_ids(
    home: RelayedHome,
) -> None:
    """Nobody can commit in two systems at once; the ID is what makes it harmless."""
    home.publish(5)
    with relay(home, "sent") as killed:
        assert -signal.SIGKILL == killed.process.wait(DEADLINE_S)
    assert [] == query(home.dsn, "SELECT messages FROM tallyweir.relay_cursor")
    home.publish(5)
    relay_once(home)
    messages = home.read_dead_letters()
    assert {2: 10, 1: 10} == Counter(Counter(m.id for m in messages).values())
    assert expected(10) == values(without_repeats(messages))
    check_order(messages)


def test_a_relay_killed_before_it_sends_loses_nothing(home: RelayedHome) -> None:
    """What was read and not sent is read again."""
    home.publish(5)
    with relay(home, "read") as killed:
        assert -signal.SIGKILL == killed.process.wait(DEADLINE_S)
    assert [] == home.read_dead_letters()
    relay_once(home)
    assert expected(5) == values(home.read_dead_letters())


@pytest.mark.parametrize("moment", ["read", "sent"])
def test_a_paused_relay_is_fenced_when_it_wakes(home: RelayedHome, moment: str) -> None:
    """Its successor has sent newer messages; nothing old may come after them."""
    home.publish(5)
    with relay(home, moment, "SIGSTOP") as paused:
        paused.wait_until_stopped()
        with relay(home) as successor:
            # The server ends the idle session, and so the lock is free.
            successor.wait_for_event("messages sent")
            home.publish(5)
            successor.wait_for_event("messages sent")
            before = home.read_dead_letters()
            paused.wake()
            woken = paused.wait_for_event(
                "pipeline not relayed" if moment == "read" else "relay interrupted"
            )
            assert (
                woken["error_code"]
                in {
                    "read": {"RELAY_FENCED"},
                    "sent": {"POSTGRES_UNAVAILABLE", "POSTGRES_UNREACHABLE"},
                }[moment]
            )
            paused.wait_for_event("standing by")
            after = home.read_dead_letters()
    assert before == after
    repeats = 10 if moment == "sent" else 0
    assert 20 + repeats == len(after)
    assert expected(10) == values(without_repeats(after))
    check_order(after)


def test_a_standby_takes_over_from_a_relay_that_dies(home: RelayedHome) -> None:
    """The lock dies with its session; until then the second one only waits."""
    with relay(home) as first:
        first.wait_for_event("relay active")
        with relay(home) as second:
            second.wait_for_event("standing by")
            home.publish(2)
            first.wait_for_event("messages sent")
            first.end()
            second.wait_for_event("relay active")
            home.publish(2)
            second.wait_for_event("messages sent")
    messages = home.read_dead_letters()
    assert expected(4) == values(messages)


def test_the_relays_role_may_do_what_it_must(
    server_dsn: str, kafka_bootstrap: str
) -> None:
    """It owns nothing, and changes its cursor and the outbox only."""
    with role_world(server_dsn) as roles:
        home = RelayedHome(dsn=roles.dsn(OWNER), bootstrap=kafka_bootstrap)
        home.publish(2)
        home.execute(
            "INSERT INTO tallyweir.outbox SELECT pipeline, sequence, kafka_topic, "
            f"kafka_partition, kafka_offset, '{home.topic}.out', 'id', key, payload "
            "FROM tallyweir.dead_letter"
        )
        for _ in range(2):
            assert [] == relay_round(roles.dsn(RELAY), kafka_bootstrap)
        assert expected(2) == values(home.read_dead_letters())
        sent = read_committed(kafka_bootstrap, f"{home.topic}.out")
        assert expected(2) == values(sent)
        assert {0: 2, 1: 2} == home.read_group()


def test_the_session_that_holds_the_lock_is_ended_when_it_is_silent(
    home: RelayedHome,
) -> None:
    """A paused relay must not keep the lock for ever."""
    feed = RelayFeed(home.dsn, idle_timeout_s=0.2)
    assert feed.try_lock()
    successor = RelayFeed(home.dsn)
    try:
        wait_for(successor.try_lock, "the lock's release")
    finally:
        successor.close()
        feed.close()


def test_the_command_sends_and_ends_cleanly_on_sigterm(home: RelayedHome) -> None:
    """Dead letters go out, the metrics say so, and the exit code is 0."""
    home.publish(1)
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tallyweir.services.cli", "relay", "--every", "1s"],
        env={
            **os.environ,
            "TALLYWEIR_HOME_DSN": home.dsn,
            "TALLYWEIR_KAFKA_BOOTSTRAP": home.bootstrap,
            "TALLYWEIR_METRICS_PORT": str(port),
        },
    )
    try:
        wait_for(lambda: expected(1) == values(home.read_dead_letters()), "relaying")
        wait_for(lambda: 200 == get(port, "/readyz")[0], "being ready")
        sent = f'{{pipeline="{home.pipeline}",stream="dead_letter"}} 2.0'
        assert f"tallyweir_relay_messages_total{sent}" in get(port, "/metrics")[1]
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(DEADLINE_S)
    finally:
        process.kill()
        process.wait()
