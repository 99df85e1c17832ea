"""One set of secrets and one running system for all tests in containers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker.models.containers import Container

from integration_tests.containers.deployment import Deployment, running
from tallyweir.services.local.embedded.state_directory import ROOT

#: Small batches, for every kill to hit a pipeline that has work. Workers have it too: a
#: driver would stage such batches itself.
_DRIVER = {
    "TALLYWEIR_BATCH_OFFSETS_MAX": "250",
    "TALLYWEIR_SMALL_BATCH_OFFSETS_MAX": "0",
}


@pytest.fixture(scope="session", autouse=True)
def lane() -> None:
    """None beside the containers, which is where these tests have theirs."""


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Passwords, certificates and keys, made as an operator makes them."""
    directory = tmp_path_factory.mktemp("secrets")
    script = ROOT / "docker" / "make-secrets"
    subprocess.run([str(script), str(directory)], check=True, capture_output=True)
    return directory


@pytest.fixture(scope="session")
def system(secrets: Path) -> Iterator[Deployment]:
    """Every service of the compose file, running."""
    rules = Path(__file__).with_name("alerts.yaml")
    mounts = {"./observability/alerts.yaml": rules}
    described = Deployment(secrets, {"driver": _DRIVER}, mounts=mounts)
    with running(described) as deployment:
        deployment.start("kafka", "postgres", "spark-master")
        deployment.start("migrate", "kafka-access", "spark-worker-1", "spark-worker-2")
        deployment.start("resolver", "relay", "ingest", "driver", "monitor", "alerts")
        yield deployment


@pytest.fixture
def receiver(system: Deployment) -> Container:
    """Whom the alerts service tells; has printed what it was told."""
    return system.start_python("webhook_receiver", service="alerts", alias="receiver")
