"""Profiles: settings of Spark that go together, by what a pipeline needs most.

``docs/scaling.md`` has what each is for, and what was measured. The Helm chart has the
same numbers as values, for Kubernetes must know them before a driver runs.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from sinks.protocol.errors import ConfigurationError

PROFILE_VARIABLE = "TALLYWEIR_PROFILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a driver and its executors get where nobody says otherwise.

    Attributes:
        driver_memory: Heap of the driver's JVM.
        batch_offsets_max: Offsets that one batch reads at most.
        tasks_per_core: Tasks at a time on each core, where the driver runs them all.
        executor_cores: Tasks that one executor runs at a time; None as Spark has it.
        executor_memory: Heap of an executor's JVM; None as Spark has it.
        executor_overhead: Memory of an executor besides, which Python works in; only
            Kubernetes asks for it.
    """

    driver_memory: str
    batch_offsets_max: int
    tasks_per_core: int
    executor_cores: int | None = None
    executor_memory: str | None = None
    executor_overhead: str | None = None

    @property
    def spark_settings(self) -> dict[str, str]:
        """What Spark is told of its executors; nothing where nothing is meant."""
        settings = {
            "spark.executor.cores": self.executor_cores,
            "spark.executor.memory": self.executor_memory,
            "spark.executor.memoryOverhead": self.executor_overhead,
        }
        return {key: str(value) for key, value in settings.items() if value is not None}


#: Of a pipeline without a profile. A task alternates between JVM, Python and Postgres,
#: so two tasks a core keep the machine busy.
NO_PROFILE = Profile(driver_memory="2g", batch_offsets_max=250_000, tasks_per_core=2)

PROFILES: Mapping[str, Profile] = {
    # Few tasks with much room each: the rows of a task lie in its memory.
    "memory": Profile(
        driver_memory="4g",
        batch_offsets_max=250_000,
        tasks_per_core=1,
        executor_cores=2,
        executor_memory="6g",
        executor_overhead="4g",
    ),
    # Many tasks at once, and batches that give them all something to do.
    "cpu": Profile(
        driver_memory="2g",
        batch_offsets_max=1_000_000,
        tasks_per_core=2,
        executor_cores=4,
        executor_memory="3g",
        executor_overhead="2g",
    ),
    # Results wait for the end of their batch, so a batch is small.
    "streaming": Profile(
        driver_memory="2g",
        batch_offsets_max=50_000,
        tasks_per_core=2,
        executor_cores=2,
        executor_memory="2g",
        executor_overhead="1g",
    ),
}


def chosen_profile(environment: Mapping[str, str]) -> Profile:
    """Return the profile that an environment names, or what holds without one.

    Raises:
        ConfigurationError: ``PROFILE_UNKNOWN``.
    """
    name = environment.get(PROFILE_VARIABLE)
    if not name:
        return NO_PROFILE
    if name not in PROFILES:
        near = difflib.get_close_matches(name, PROFILES, 1)
        meant = f" Did you mean {near[0]}?" if near else ""
        raise ConfigurationError(
            "PROFILE_UNKNOWN",
            saw=f"{PROFILE_VARIABLE}, or --profile, is {name!r}.{meant}",
            why=f"There are {', '.join(PROFILES)}.",
            fix="Name one of them, or none.",
        )
    return PROFILES[name]
