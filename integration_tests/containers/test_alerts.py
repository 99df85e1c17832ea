"""The alerts service, in its container and with its rights only, tells a receiver."""

from __future__ import annotations

import json

import pytest
from docker.models.containers import Container

from integration_tests.containers.deployment import Deployment, output_of
from integration_tests.containers.patience import await_true

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_an_alert_fires_and_is_resolved(
    system: Deployment, receiver: Container
) -> None:
    """Somebody pauses the pipeline, and later lets it go on."""
    # A pipeline is known once its driver has claimed it, and is read without an error.
    await_true(lambda: '"alerts active"' in system.log("alerts"), "the service at work")
    assert _told(receiver) == []
    output_of(system.run("migrate", "pause", "departures", "--reason=a test"))
    await_true(lambda: _told(receiver) == ["firing"], "the receiver to be told")
    output_of(system.run("migrate", "resume", "departures"))
    await_true(
        lambda: _told(receiver) == ["firing", "resolved"], "the receiver to be told"
    )
    # Kafka and the home let it read all that its rules ask for.
    assert '"level": "error"' not in system.log("alerts")


def _told(receiver: Container) -> list[str]:
    """Return what was told, without repeats of one notification."""
    posted = map(json.loads, receiver.logs(stderr=False).decode().splitlines())
    told = {one["id"]: one for one in posted}
    assert {("departures", "paused")} >= {
        (one["pipeline"], one["rule"]) for one in told.values()
    }
    return [one["about"] for one in told.values()]
