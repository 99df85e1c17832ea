"""The embedded servers survive what laptops do to them, with their data."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tallyweir.services.local.embedded.kafka import EmbeddedKafka
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.sinks.protocol.errors import RetryableError

TOPIC = "kept"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker of this module's own, with one topic."""
    broker = EmbeddedKafka(tmp_path_factory.mktemp("kafka"))
    broker.start()
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in client.create_topics([NewTopic(TOPIC, 1, 1)]).values():
        made.result(30)
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server of this module's own, with one table."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"))
    server.start()
    with psycopg.connect(server.dsn) as connection:
        connection.execute("CREATE TABLE kept (value integer NOT NULL)")
    yield server
    server.stop()


def kill(server: EmbeddedKafka | EmbeddedPostgres) -> None:
    """End the server as a power cut would, and wait until it is gone."""
    process = server.daemon.find()
    assert process is not None
    process.kill()
    psutil.wait_procs([process], timeout=30)


def send(broker: EmbeddedKafka, value: bytes) -> None:
    """Produce one record, acknowledged by the broker."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    producer.produce(TOPIC, value)
    assert producer.flush(30) == 0


def end_offset(broker: EmbeddedKafka) -> int:
    """How many records the topic ever had."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
    finally:
        consumer.close()
    return int(end)


def row_count(server: EmbeddedPostgres) -> int:
    """How many rows the table has."""
    with psycopg.connect(server.dsn) as connection:
        row = connection.execute("SELECT count(*) FROM kept").fetchone()
    assert row is not None
    return int(row[0])


def test_kafka_keeps_acknowledged_records_over_a_clean_restart(
    kafka: EmbeddedKafka,
) -> None:
    """`down` and `up` lose nothing, and clients find the broker where it was."""
    send(kafka, b"before")
    expected, bootstrap = end_offset(kafka), kafka.bootstrap

    assert kafka.stop()
    assert not kafka.is_running()
    assert kafka.start()

    assert expected == end_offset(kafka)
    assert bootstrap == kafka.bootstrap


def test_kafka_comes_up_again_after_kill_9(kafka: EmbeddedKafka) -> None:
    """A stale pid file and an unclean log directory are repaired by `up`."""
    expected = end_offset(kafka)

    kill(kafka)
    assert not kafka.is_running()
    assert kafka.start()

    assert expected == end_offset(kafka)
    send(kafka, b"after")
    assert expected + 1 == end_offset(kafka)


def test_kafka_makes_no_topic_by_accident(kafka: EmbeddedKafka) -> None:
    """A typo in a topic's name must be an error, not a new, empty topic."""
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})

    assert client.list_topics("typo", timeout=30).topics["typo"].error is not None
    assert "typo" not in client.list_topics(timeout=30).topics


def test_postgres_keeps_committed_rows_over_a_clean_restart(
    postgres: EmbeddedPostgres,
) -> None:
    """`down` and `up` lose nothing, and clients find the server where it was."""
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("INSERT INTO kept VALUES (1)")
    expected, dsn = row_count(postgres), postgres.dsn

    assert postgres.stop()
    assert not postgres.is_running()
    assert postgres.start()

    assert dsn == postgres.dsn
    assert expected == row_count(postgres)


def test_postgres_comes_up_again_after_kill_9(postgres: EmbeddedPostgres) -> None:
    """What was committed a moment before the power cut is there afterwards."""
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("INSERT INTO kept VALUES (2)")
    expected = row_count(postgres)
    # An open session delays the death of the server's children.
    session = psycopg.connect(postgres.dsn)

    kill(postgres)
    assert not postgres.is_running()
    assert postgres.start()

    session.close()
    assert expected == row_count(postgres)


def test_postgres_starts_although_its_old_number_is_somebody_elses(
    postgres: EmbeddedPostgres,
) -> None:
    """After a reboot the number in postmaster.pid may belong to any process."""
    kill(postgres)
    lock = postgres.directory / "data" / "postmaster.pid"
    lines = lock.read_text().splitlines()
    lock.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")

    assert postgres.start()


def test_postgres_never_starts_beside_a_server_that_is_still_there(
    postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers on one data directory would destroy it, pid file or not."""
    postgres.start()
    pid_file = postgres.directory / "pid"
    number = pid_file.read_text()
    monkeypatch.setattr(
        "tallyweir.services.local.embedded.postgres._LEFTOVER_DEADLINE_S", 0.2
    )
    pid_file.unlink()

    with pytest.raises(RetryableError, match="POSTGRES_LEFTOVERS"):
        postgres.start()

    pid_file.write_text(number)
    assert row_count(postgres) >= 0


def test_a_start_that_finds_the_server_running_changes_nothing(
    kafka: EmbeddedKafka, postgres: EmbeddedPostgres
) -> None:
    """`up` twice is `up` once."""
    for server in (kafka, postgres):
        server.start()
        before = server.daemon.find()

        assert not server.start()
        assert before == server.daemon.find()


def test_postgres_is_durable_and_asks_for_the_password(
    postgres: EmbeddedPostgres,
) -> None:
    """A laptop's home database gives the guarantees of a real one."""
    with psycopg.connect(postgres.dsn) as connection:
        for name, expected in {
            "fsync": "on",
            "synchronous_commit": "on",
            "max_prepared_transactions": "64",
            "listen_addresses": "127.0.0.1",
        }.items():
            row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
            assert (expected,) == row

    mode = stat.S_IMODE((postgres.directory / "password").stat().st_mode)
    assert mode == 0o600
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(postgres.dsn, password="wrong")


def test_deleted_data_is_gone_and_the_next_start_is_fresh(tmp_path: Path) -> None:
    """`down --delete-data` leaves nothing, running or on disk."""
    server = EmbeddedPostgres(tmp_path / "fresh")
    server.start()
    process = server.daemon.find()
    server.delete_data()

    assert process is not None
    assert not process.is_running()
    assert not server.directory.exists()
    assert not server.daemon.stop(signal.SIGTERM, deadline_s=1)
