"""A look at a topic of JSON writes a pipeline that runs as it is."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.harness.command_line import CommandLine
from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import NOON, Sent
from tallyweir.services.look.pipeline_proposal import pipeline_name, table_name
from tallyweir.sinks.postgres.server.naming import HOME

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_ORDERS = 40


def _order(number: int) -> bytes:
    at = NOON + dt.timedelta(seconds=number)
    return (
        f'{{"order_id": "o{number}", "customer": {{"id": {number}}}, '
        f'"amount": {number}.25, "placed_at": "{at.isoformat()}"}}'
    ).encode()


def test_what_a_look_writes_runs_and_is_verified(
    tmp_path: Path,
    kafka_bootstrap: str,
    empty_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Repeats are counted before they are dropped; no consumer group is left."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    values = [*map(_order, range(_ORDERS)), _order(7), b"no document"]
    world.topic.send([Sent(value=value) for value in values])
    world.pipeline_file.unlink()
    line = CommandLine(
        monkeypatch=monkeypatch, capsys=capsys, databases={HOME: empty_dsn}
    )
    arguments = (
        *("look", "--topic", world.topic.name, "--kafka", kafka_bootstrap),
        *("--output", str(world.pipeline_file)),
    )
    code, said, complained = line.run(*arguments)

    assert (0, "") == (code, complained)
    assert "event_id: order_id. Repeats, which are dropped: 1;" in said
    assert "event_time: placed_at, watermark_delay: 1 minute." in said
    assert said.rstrip().endswith(f"run {world.pipeline_file} --once")
    code, _, complained = line.run(*arguments)
    assert 78 == code
    assert complained.startswith("FILE_EXISTS")

    world.run_to_the_end()
    table = table_name(world.topic.name)
    assert [(_ORDERS, _ORDERS)] == world.fetch(
        f'SELECT count(*), count(DISTINCT customer_id) FROM "{table}"'
    )
    assert 1 == world.value("SELECT count(*) FROM tallyweir.duplicate_event")
    assert 1 == world.value("SELECT count(*) FROM tallyweir.dead_letter")
    world.assert_verified(pipeline_name(world.topic.name))
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    groups = admin.list_consumer_groups().result().valid
    assert "tallyweir-look" not in {one.group_id for one in groups}
