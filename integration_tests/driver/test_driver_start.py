"""Mistakes that keep a driver from starting: each is told once, clearly, and soon."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from integration_tests.harness.driver_world import PIPELINE, DriverWorld
from integration_tests.harness.readings import READING
from integration_tests.harness.watched_driver import WatchedDriver
from tallyweir.services.local.embedded.embedded_server import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_CONFIGURATION = 78
#: Generous: what is promised is 30 s on an idle machine, a few where Spark is not
#: needed to find the mistake.
_DEADLINE_S = 90.0

_LOOKUP = """
    enrich:
      - {{table: sensors, on: {{sensor: code}}, select: {{place: name}}}}
"""


@pytest.fixture
def world(tmp_path: Path, kafka_bootstrap: str, empty_dsn: str) -> DriverWorld:
    """A pipeline in which nothing is wrong yet."""
    return DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)


def _assert_refused_before_spark(
    world: DriverWorld,
    code: str,
    *words: str,
    bootstrap: str | None = None,
    dsn: str | None = None,
) -> None:
    """Assert that the driver ends with the code on its first line and an answer."""
    with WatchedDriver(
        world.pipeline_file,
        kafka_bootstrap=bootstrap or world.topic.bootstrap,
        home_dsn=world.home_dsn if dsn is None else dsn,
        state_directory=world.state,
    ) as driver:
        assert _CONFIGURATION == driver.wait(timeout_s=_DEADLINE_S), driver.text
    _assert_told(driver.lines, code, *words)
    # Spark leaves its log as soon as it is started.
    assert not (world.state / "logs").exists()


def _assert_told(lines: Sequence[str], code: str, *words: str) -> None:
    text = "\n".join(lines)
    assert lines[0] == code, text
    assert "Traceback" not in text
    for word in ("saw:", "why:", "fix:", *words):
        assert word in text


def test_a_missing_topic_is_told_before_spark_starts(world: DriverWorld) -> None:
    """The error names the topic and the broker."""
    world.topic.delete()
    _assert_refused_before_spark(world, "TOPIC_MISSING", world.topic.name)


def test_an_unreachable_broker_is_told_before_spark_starts(world: DriverWorld) -> None:
    """At a start an address that does not answer is taken for a wrong one."""
    nowhere = f"127.0.0.1:{free_port()}"
    _assert_refused_before_spark(world, "KAFKA_UNREACHABLE", nowhere, bootstrap=nowhere)


def test_an_unreachable_server_is_told_before_spark_starts(world: DriverWorld) -> None:
    """The password of the connection string is never shown."""
    dsn = make_conninfo(world.home_dsn, port=free_port(), password="hush-hush")
    _assert_refused_before_spark(world, "POSTGRES_UNREACHABLE", dsn=dsn)


def test_a_refused_login_is_told_before_spark_starts(world: DriverWorld) -> None:
    """A wrong password and a missing database each say what to correct."""
    wrong = make_conninfo(world.home_dsn, password="wrong")
    _assert_refused_before_spark(world, "POSTGRES_LOGIN_REFUSED", dsn=wrong)
    missing = make_conninfo(world.home_dsn, dbname="nothing_of_that_name")
    _assert_refused_before_spark(world, "POSTGRES_LOGIN_REFUSED", dsn=missing)


def test_a_typo_in_the_pipeline_is_told_before_spark_starts(world: DriverWorld) -> None:
    """The error names the key that was probably meant."""
    world.write_pipeline(f"{PIPELINE}    validat: off\n")
    _assert_refused_before_spark(
        world, "PIPELINE_UNKNOWN_KEY", "'validat'", "Write validate"
    )


def test_a_contract_that_cannot_read_its_past_is_told_before_spark_starts(
    world: DriverWorld,
) -> None:
    """A new version without a default for its new field cannot read the old one."""
    fields = [*READING["fields"], {"name": "unit", "type": "string"}]  # type: ignore[misc]
    newer = {**READING, "fields": fields}
    (world.directory / "reading.v2.avsc").write_text(json.dumps(newer))
    world.write_pipeline(PIPELINE.replace("reading.v1", "reading.v2"))
    _assert_refused_before_spark(world, "CONTRACT_INCOMPATIBLE", "reading.v1", "unit")


def _without_a_lookup_table(world: DriverWorld) -> tuple[str, ...]:
    world.write_pipeline(PIPELINE + _LOOKUP)
    return "LOOKUP_MISSING", "sensors"


def _with_a_double_key(world: DriverWorld) -> tuple[str, ...]:
    world.execute(
        "CREATE TABLE sensors (code text, name text)",
        "INSERT INTO sensors VALUES ('s1', 'roof'), ('s1', 'cellar')",
    )
    world.write_pipeline(PIPELINE + _LOOKUP)
    return "LOOKUP_AMBIGUOUS", "sensors", "s1"


def _with_other_columns(world: DriverWorld) -> tuple[str, ...]:
    world.execute("CREATE TABLE readings (id bigint, sensor text)")
    return "TABLE_DIFFERS", "readings", "sensor text", "event_id"


def _with_an_aggregate_of_text(world: DriverWorld) -> tuple[str, ...]:
    window = "table: w, fixed: 1 hour, aggregate: {{total: sum(sensor)}}"
    world.write_pipeline(f"{PIPELINE}      - window: {{{{{window}}}}}\n")
    return "AGGREGATE_TYPE", "sum", "text"


@pytest.mark.parametrize(
    "spoil",
    [
        _without_a_lookup_table,
        _with_a_double_key,
        _with_other_columns,
        _with_an_aggregate_of_text,
    ],
)
def test_what_does_not_fit_in_the_database_is_told(
    world: DriverWorld, spoil: Callable[[DriverWorld], tuple[str, ...]]
) -> None:
    """Lookups, result tables and types are checked before the first event is read."""
    told = spoil(world)
    _assert_told(world.run_to_the_end(code=_CONFIGURATION).lines, *told)
    assert (world.state / "logs").exists()
    assert not world.fetch(
        "SELECT FROM pg_tables WHERE schemaname LIKE 'tallyweir_stage%'"
    )
