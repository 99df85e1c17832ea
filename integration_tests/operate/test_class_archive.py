"""A driver's JVM maps its classes from the archive that was made for it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from tallyweir.services.local.embedded.java import class_archive
from tallyweir.services.process.endpoints import Endpoints, child_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.long
def test_a_driver_maps_the_archive_and_one_that_does_not_fit_is_ignored(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """An archive of another Java or Spark must not keep a driver from starting."""
    endpoints = Endpoints(kafka_bootstrap=kafka_bootstrap, home_dsn=empty_dsn)
    archive = class_archive(child_environment(endpoints))
    assert archive is not None
    other = tmp_path / "other.jsa"
    # Its first bytes say whose it is.
    other.write_bytes(bytes(64) + archive.read_bytes()[64:])
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    sent = world.topic.send(numbered(world, 0, 20))

    for used, is_mapped in ((archive, True), (other, False)):
        environment = {"TALLYWEIR_CLASS_ARCHIVE": str(used)}
        with world.driver(environment=environment) as driver:
            driver.wait_for("driver started")
            world.await_value("SELECT count(*) FROM readings", lambda n: n == 20)
            # The kernel names a mapped file by its path without symbolic links.
            mapped = _mapped_files(os.getpid())
            assert (str(used.resolve()) in mapped) == is_mapped
    world.assert_fates(sent)


def _mapped_files(parent: int) -> set[str]:
    """List the files that the JVMs below a process have mapped."""
    mapped: set[str] = set()
    for process in psutil.Process(parent).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name() == "java":
                mapped.update(file.path for file in process.memory_maps())
    return mapped
