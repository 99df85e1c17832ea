"""Profiles: settings of Spark that go together, by what a pipeline needs most.

``docs/scaling.md`` says what each profile is for, and what was measured. The Helm chart
repeats the numbers as values, because Kubernetes must know them before a driver runs.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from tallyweir.sinks.protocol.errors import ConfigurationError

PROFILE_VARIABLE = "TALLYWEIR_PROFILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The defaults of a driver and its executors.

    Attributes:
        driver_memory: The heap of the driver's JVM.
        batch_offsets_max: The most offsets that one batch reads.
        tasks_per_core: How many tasks run at a time on each core, if the driver runs
            all tasks.
        executor_cores: How many tasks an executor runs at a time; None for Spark's
            default.
        executor_memory: The heap of an executor's JVM; None for Spark's default.
        executor_overhead: Additional memory of an executor, which Python uses; only
            Kubernetes applies it.
    """

    driver_memory: str
    batch_offsets_max: int
    tasks_per_core: int
    executor_cores: int | None = None
    executor_memory: str | None = None
    executor_overhead: str | None = None

    @property
    def spark_settings(self) -> dict[str, str]:
        """Spark's settings for its executors; a value of None gives no setting."""
        settings = {
            "spark.executor.cores": self.executor_cores,
            "spark.executor.memory": self.executor_memory,
            "spark.executor.memoryOverhead": self.executor_overhead,
        }
        return {key: str(value) for key, value in settings.items() if value is not None}


#: The defaults of a pipeline without a profile. A task alternates between JVM, Python
#: and Postgres, so two tasks per core keep the machine busy.
NO_PROFILE = Profile(driver_memory="2g", batch_offsets_max=250_000, tasks_per_core=2)

PROFILES: Mapping[str, Profile] = {
    # Few tasks with much memory each: a task holds all of its rows in memory.
    "memory": Profile(
        driver_memory="4g",
        batch_offsets_max=250_000,
        tasks_per_core=1,
        executor_cores=2,
        executor_memory="6g",
        executor_overhead="4g",
    ),
    # Many tasks at a time, and batches that are large enough for all of them.
    "cpu": Profile(
        driver_memory="2g",
        batch_offsets_max=1_000_000,
        tasks_per_core=2,
        executor_cores=4,
        executor_memory="3g",
        executor_overhead="2g",
    ),
    # Small batches, because results wait for the end of their batch.
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
    """Return the profile that an environment names, or ``NO_PROFILE``.

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
            fix="Name one of them, or leave it unset.",
        )
    return PROFILES[name]
