"""The advisory groups: Kafka's tools see what the home database says, nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer

from integration_tests.harness.fresh_databases import copied_database
from integration_tests.harness.relayed_home import (
    RelayedHome,
    expected,
    relay_once,
    values,
    wait_for,
    without_repeats,
)
from tallyweir.services.relay import offset_mirror
from tallyweir.services.relay.service import RelayMetrics, RelayService


@pytest.fixture
def home(home_dsn: str, kafka_bootstrap: str) -> RelayedHome:
    """A home database without any batch, and its topic."""
    return RelayedHome(dsn=home_dsn, bootstrap=kafka_bootstrap)


def test_committed_offsets_are_shown_and_go_back_with_a_restore(
    home: RelayedHome, server_dsn: str
) -> None:
    """The group says what the database says, whatever it said before."""
    relay_once(home)
    assert {0: 0, 1: 0} == home.read_group()
    home.publish(3)
    with copied_database(server_dsn, home.dsn) as restored:
        home.publish(4)
        relay_once(home)
        assert {0: 7, 1: 7} == home.read_group()
        home.dsn = restored
        relay_once(home)
        assert {0: 3, 1: 3} == home.read_group()
        # The restored home does not know what was sent: it sends it again.
        messages = home.read_dead_letters()
        assert 20 == len(messages)
        assert expected(7) == values(without_repeats(messages))


def test_a_group_that_somebody_moved_is_put_right(home: RelayedHome) -> None:
    """Only the database says where a pipeline stands."""
    home.publish(3)
    relay_once(home)
    home.move_group(999)
    _, metrics = relay_once(home)
    assert {0: 3, 1: 3} == home.read_group()
    assert 0 == metrics.drift.labels(home.pipeline)._value.get()


def test_what_somebody_moves_under_a_running_relay_is_written_over(
    home: RelayedHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets that did not change are not written at each round, but now and then."""
    home.publish(3)
    metrics = RelayMetrics()
    service = RelayService(home.dsn, home.bootstrap, every_s=1, metrics=metrics)
    try:
        assert [] == service.run_round()
        home.move_group(999)
        assert [] == service.run_round()
        assert {0: 999, 1: 999} == home.read_group()
        monkeypatch.setattr(offset_mirror, "REFRESH_S", 0)
        assert [] == service.run_round()
        assert {0: 3, 1: 3} == home.read_group()
    finally:
        service.run_once()


def test_a_group_with_members_is_left_and_told(home: RelayedHome) -> None:
    """Kafka moves no group that somebody uses; the drift shows it."""
    home.publish(3)
    consumer = Consumer(
        {
            "bootstrap.servers": home.bootstrap,
            "group.id": f"tallyweir.{home.pipeline}",
            "enable.auto.commit": False,
        }
    )
    assigned: list[Any] = []
    consumer.subscribe(
        [home.topic], on_assign=lambda _, places: assigned.extend(places)
    )

    def is_member() -> bool:
        consumer.poll(0.1)
        return len(assigned) == 2

    try:
        wait_for(is_member, "joining the group")
        failures, metrics = relay_once(home)
    finally:
        consumer.close()
    assert ["OFFSET_MIRROR_REFUSED"] == failures
    assert 6 == metrics.drift.labels(home.pipeline)._value.get()
    assert expected(3) == values(home.read_dead_letters())
    assert [] == relay_once(home)[0]
    assert {0: 3, 1: 3} == home.read_group()
