"""What only a watcher sees of a pipeline is kept for charts, once, and for two days."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from integration_tests.harness.command_line import CommandLine
from integration_tests.harness.readings import Sent
from integration_tests.harness.written_topic import WrittenTopic
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.services.monitor.gauge_keeper import GaugeKeeper
from tallyweir.services.monitor.home_reader import HomeReader
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres.records.pipeline_gauges import (
    EVERY_S,
    read_gauges,
    read_newest_gauges,
)
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.offsets import TopicPartition

_DAY_S = 86_400
_DEADLINE_S = 60.0
_RECORDS, _READ = 30, 10


@pytest.fixture
def unread(
    kafka_bootstrap: str,
    topic: str,
    scenario: LedgerScenario,
    connection: psycopg.Connection[TupleRow],
) -> WrittenTopic:
    """The scenario's topic, of which the pipeline has read a third."""
    log = WrittenTopic(kafka_bootstrap, topic)
    log.create(1)
    log.send([Sent(value=b"%d" % number) for number in range(_RECORDS)])
    broker, _ = KafkaAdmin(kafka_bootstrap, topic).read_there()
    assert broker is not None
    connection.execute("DELETE FROM tallyweir.partition_progress")
    connection.execute(
        "INSERT INTO tallyweir.partition_progress "
        "(pipeline, topic, partition, topic_id, next_offset, event_time_max) "
        "VALUES (%s, %s, 0, %s, %s, now() - interval '5 s')",
        (PIPELINE, topic, broker[TopicPartition(topic, 0)].topic_id, _READ),
    )
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = "
        "jsonb_set(definition, '{source,topic}', %s)",
        (Jsonb(topic),),
    )
    connection.commit()
    assert scenario.sequence == 3
    return log


@contextmanager
def _keeper(dsn: str, bootstrap: str) -> Iterator[GaugeKeeper]:
    with closing(HomeReader(dsn)) as home:
        yield GaugeKeeper(home, bootstrap)


def _gauge_in_one_interval(
    keeper: GaugeKeeper, connection: psycopg.Connection[TupleRow], times: int
) -> None:
    """Read the gauges some times, such that all are of the same half minute."""
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        connection.execute("DELETE FROM tallyweir.pipeline_gauge")
        connection.commit()
        began = _interval(connection)
        for _ in range(times):
            keeper.gauge_all(asyncio.Event())
        if _interval(connection) == began:
            return
    pytest.fail("no interval was long enough")


def _interval(connection: psycopg.Connection[TupleRow]) -> object:
    (interval,) = connection.execute(
        "SELECT date_bin(make_interval(secs => %s), clock_timestamp(), 'epoch')",
        (EVERY_S,),
    ).fetchone() or (None,)
    connection.commit()
    return interval


def test_what_is_unread_has_an_age_and_a_headroom(
    home_dsn: str,
    kafka_bootstrap: str,
    unread: WrittenTopic,
    connection: psycopg.Connection[TupleRow],
) -> None:
    """By the topic's own retention; what was read has neither."""
    with _keeper(home_dsn, kafka_bootstrap) as keeper:
        keeper.gauge_all(asyncio.Event())
        gauges = keeper.found[PIPELINE].gauges
        assert gauges.lag == _RECORDS - _READ
        assert gauges.unread_s is not None
        assert 0 <= gauges.unread_s < _DEADLINE_S
        assert gauges.headroom_s is not None
        assert 7 * _DAY_S - _DEADLINE_S < gauges.headroom_s <= 7 * _DAY_S
        assert gauges.freshness_s == pytest.approx(5, abs=_DEADLINE_S)
        assert gauges.home.catalog_ids == 15
        assert gauges.home.catalog_bytes is not None
        kept = read_newest_gauges(connection, PIPELINE)
        assert kept is not None
        assert (kept.lag, kept.home) == (gauges.lag, gauges.home)
        connection.execute(
            "UPDATE tallyweir.partition_progress SET next_offset = %s", (_RECORDS,)
        )
        connection.commit()
        keeper.gauge_all(asyncio.Event())
        gauges = keeper.found[PIPELINE].gauges
        assert (gauges.lag, gauges.unread_s, gauges.headroom_s) == (0, None, None)
    assert unread.name


def test_of_each_half_minute_one_is_kept_and_for_two_days(
    home_dsn: str,
    kafka_bootstrap: str,
    scenario: LedgerScenario,
    connection: psycopg.Connection[TupleRow],
) -> None:
    """However many monitors watch; they outlive who has kept them."""
    assert scenario.sequence == 3
    with _keeper(home_dsn, kafka_bootstrap) as keeper:
        _gauge_in_one_interval(keeper, connection, times=2)
    assert len(read_gauges(connection, PIPELINE, seconds=_DAY_S)) == 1
    connection.execute(
        "INSERT INTO tallyweir.pipeline_gauge (pipeline, at, prepared, prepared_s, "
        "in_doubt, in_doubt_s, state_bytes) "
        "SELECT pipeline, now() - age, 0, 0, 0, 0, 0 FROM tallyweir.pipeline, "
        "unnest(%s) AS kept (age)",
        ([timedelta(hours=47), timedelta(hours=49)],),
    )
    connection.commit()
    with _keeper(home_dsn, kafka_bootstrap) as keeper:
        keeper.gauge_all(asyncio.Event())
    ages = [kept.at for kept in read_gauges(connection, PIPELINE, seconds=30 * _DAY_S)]
    assert ages == sorted(ages)
    assert timedelta(hours=46) < ages[-1] - ages[0] < timedelta(hours=48)


def test_where_nothing_may_be_written_gauges_are_shown(
    home_dsn: str,
    kafka_bootstrap: str,
    scenario: LedgerScenario,
    connection: psycopg.Connection[TupleRow],
) -> None:
    """As on a standby."""
    assert scenario.sequence == 3
    dsn = make_conninfo(home_dsn, options="-c default_transaction_read_only=on")
    with _keeper(dsn, kafka_bootstrap) as keeper:
        keeper.gauge_all(asyncio.Event())
        assert keeper.found[PIPELINE].gauges.home.catalog_ids == 15
        # The topic is not there.
        assert keeper.found[PIPELINE].gauges.lag is None
    assert read_newest_gauges(connection, PIPELINE) is None


def test_prepared_branches_are_counted_with_their_age(
    home_dsn: str,
    kafka_bootstrap: str,
    scenario: LedgerScenario,
    connection: psycopg.Connection[TupleRow],
) -> None:
    """Those of other pipelines, and of nobody, are not."""
    assert scenario.sequence == 3
    (prefix,) = connection.execute(
        "SELECT 'tallyweir:' || installation_id || ':' || pipeline_number || ':' "
        "FROM tallyweir.installation, tallyweir.pipeline"
    ).fetchone() or ("",)
    connection.commit()
    gids = [f"{prefix}2:nonce:4:home.1:0", f"{prefix[:-1]}9:2:nonce:4:home.1:0"]
    connection.autocommit = True
    for number, gid in enumerate(gids):
        connection.execute("BEGIN")
        connection.execute(f"CREATE TABLE prepared_{number} ()")
        connection.execute(f"PREPARE TRANSACTION '{gid}'")
    try:
        with _keeper(home_dsn, kafka_bootstrap) as keeper:
            keeper.gauge_all(asyncio.Event())
            home = keeper.found[PIPELINE].gauges.home
    finally:
        for gid in gids:
            connection.execute(f"ROLLBACK PREPARED '{gid}'")
    assert home.prepared == 1
    assert 0 < home.prepared_s < _DEADLINE_S


def test_status_has_the_same_numbers(
    home_dsn: str,
    kafka_bootstrap: str,
    unread: WrittenTopic,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of the newest gauges, and none while nobody has kept any."""
    monkeypatch.setenv("TALLYWEIR_KAFKA_BOOTSTRAP", kafka_bootstrap)
    line = CommandLine(
        monkeypatch=monkeypatch, capsys=capsys, databases={HOME: home_dsn}
    )
    _, out, _ = line.run("status", PIPELINE, "--json")
    assert json.loads(out)["gauges"] is None
    with _keeper(home_dsn, kafka_bootstrap) as keeper:
        keeper.gauge_all(asyncio.Event())
    _, out, _ = line.run("status", PIPELINE, "--json")
    found = json.loads(out)
    assert found["gauges"]["lag"] == found["lag"] == _RECORDS - _READ
    assert found["committed"]["latency_p95_s"] is None
    code, out, _ = line.run("status", PIPELINE)
    assert code == 0
    assert "retention headroom" in out
    assert unread.name
