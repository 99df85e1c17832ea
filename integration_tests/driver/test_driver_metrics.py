"""A driver's metrics agree with the ledger, and its dead letters reach the relay."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.metrics_client import free_port, get
from integration_tests.harness.readings import Sent
from integration_tests.harness.relayed_home import wait_for
from tallyweir.services.relay.service import RelayMetrics, RelayService

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_DEAD = Sent(value=b"no reading", partition=1, fate="BAD_MAGIC")


def _samples(port: int) -> dict[tuple[str, str], float]:
    """Return by name and the value of the label that is not the pipeline's."""
    _, text = get(port, "/metrics")
    return {
        (
            sample.name.removeprefix("tallyweir_"),
            "/".join(v for k, v in sorted(sample.labels.items()) if k != "pipeline"),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_and_relay_say_what_the_ledger_says(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """A driver is ready while idle, counts what it published, and no more."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    records = world.topic.send([*numbered(world, 0, 20), _DEAD])
    port = free_port()
    with world.driver(environment={"TALLYWEIR_METRICS_PORT": str(port)}) as driver:
        world.await_read(len(records))
        wait_for(lambda: 200 == get(port, "/readyz")[0], "being ready")
        lag = "source_lag_records", f"1/{world.topic.name}"
        wait_for(
            lambda: 0.0 == _samples(port).get(lag),
            "catching up",
        )
        found = _samples(port)
        assert 200 == get(port, "/livez")[0]
        (read, committed, dead, batches) = world.fetch(
            "SELECT sum(read), sum(committed), sum(dead), count(DISTINCT sequence) "
            "FROM tallyweir.batch_partition"
        )[0]
        assert (21, 20, 1) == (read, committed, dead)
        assert read == found["rows_read_total", ""]
        assert committed == found["rows_committed_total", ""]
        assert dead == found["dead_letters_total", "BAD_MAGIC"]
        assert batches == found["batches_total", "committed"]
        assert batches == found["batch_phase_duration_seconds_count", "publish"]
        assert 1 == found["epoch", ""]
        assert found["last_commit_timestamp_seconds", ""] > 0
        assert ("data_freshness_seconds", "") in found
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text

    metrics = RelayMetrics()
    relay = RelayService(home_dsn, kafka_bootstrap, every_s=1, metrics=metrics)
    assert (True, []) == relay.run_once()
    sent = metrics.messages.labels("readings", "dead_letter")
    assert 1 == sent._value.get()
