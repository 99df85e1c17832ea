"""Finds the process of a pipeline's newest driver, if it is on this host."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from tallyweir.sinks.postgres.audit import PipelineSummary
from tallyweir.sinks.protocol.errors import ConfigurationError

#: Most that the clocks of host and database may differ by.
_CLOCK_SKEW_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDriver:
    """A driver that runs on this host.

    Attributes:
        epoch: Epoch of its claim.
        process_id: Process id of its Python process.
        jvm: Process id of its JVM; None if no JVM runs.
    """

    epoch: int
    process_id: int
    jvm: int | None


def find_driver(pipelines: Sequence[PipelineSummary], pipeline: str) -> FoundDriver:
    """Return the process that has the pipeline's newest claim.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``PROFILE_NO_DRIVER``, or
            ``PROFILE_OTHER_HOST``.
    """
    found = next((one for one in pipelines if one.pipeline == pipeline), None)
    if found is None:
        known = ", ".join(one.pipeline for one in pipelines) or "none"
        raise ConfigurationError(
            "PIPELINE_UNKNOWN",
            saw=f"The home database has no pipeline {pipeline}; it has: {known}.",
            why="The command finds the driver by its claim in the home database.",
            fix="Correct the name, or the home database.",
        )
    driver = found.driver
    if driver is None or not driver.is_connected:
        last = "" if driver is None else f"; the last one had epoch {driver.epoch}"
        raise _no_driver(f"No driver of {pipeline} is connected{last}.")
    if driver.host != socket.gethostname():
        raise ConfigurationError(
            "PROFILE_OTHER_HOST",
            saw=f"The driver of {pipeline} is process {driver.process_id} on "
            f"{driver.host}; this is {socket.gethostname()}.",
            why="A process can only be sampled on its own host or in its own "
            "container.",
            fix=f"Run tallyweir profile {pipeline} there.",
        )
    try:
        process = psutil.Process(driver.process_id)
        began = process.create_time()
        jvm = next((c.pid for c in process.children() if c.name() == "java"), None)
    except psutil.NoSuchProcess:
        raise _no_driver(f"This host has no process {driver.process_id}.") from None
    if began > driver.claimed_at.timestamp() + _CLOCK_SKEW_S:
        # The process id has since been reused.
        raise _no_driver(f"Process {driver.process_id} is younger than its claim.")
    return FoundDriver(epoch=driver.epoch, process_id=driver.process_id, jvm=jvm)


def _no_driver(saw: str) -> ConfigurationError:
    return ConfigurationError(
        "PROFILE_NO_DRIVER",
        saw=saw,
        why="Only a running driver can be sampled.",
        fix="Start the driver; if it runs in a container, run this command in that "
        "container.",
    )
