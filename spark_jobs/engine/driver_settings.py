"""The settings of a driver process, read once from its environment, and their profiles.

A profile is a set of Spark settings that go together, by what a pipeline needs most.
``docs/scaling.md`` says what each profile is for, and what was measured. The Helm chart
repeats the numbers as values, because Kubernetes must know them before a driver runs.
"""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tallyweir.sinks.postgres.server.databases import parse_databases
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.settings import HOME_DSN_VARIABLE, read_setting

_PORT_MAX = 65_535

#: The driver itself stages a batch of up to this many offsets; several tasks share the
#: work of a larger one.
SMALL_BATCH_OFFSETS_MAX = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSettings:
    """Settings of one driver process.

    Attributes:
        kafka_bootstrap: ``host:port``, several separated by commas.
        home_dsn: libpq connection string, empty for libpq's defaults. Hidden in
            ``repr``, because it may hold a password.
        databases: The connection strings of all other databases, hidden as well.
        spark_master: Such as ``local[4]`` or ``spark://host:7077``.
        spark_jars: The connector's jars.
        class_archive: The file that ``tallyweir.spark_jobs.engine.class_archive``
            wrote, if any.
        state_directory: The directory of checkpoints, caches and logs; safe to delete
            while no driver runs.
        batch_offsets_max: The most offsets that one batch reads.
        small_batch_offsets_max: The most offsets of a batch that the driver stages
            itself; 0 leaves every batch to Spark's tasks.
        driver_memory: The heap of the driver's JVM, as in ``2g``.
        executors: Spark's settings for its executors, by Spark's names.
        claims_port: The port on which tasks ask the driver for IDs; 0 for any free
            port.
    """

    kafka_bootstrap: str
    home_dsn: str = field(repr=False)
    databases: Mapping[str, str] = field(repr=False)
    spark_master: str
    spark_jars: str
    class_archive: Path | None
    state_directory: Path
    batch_offsets_max: int
    small_batch_offsets_max: int = SMALL_BATCH_OFFSETS_MAX
    driver_memory: str
    executors: Mapping[str, str] = field(default_factory=dict)
    claims_port: int = 0

    @property
    def dsns(self) -> dict[str, str]:
        """The connection strings of all databases by name, the home's among them."""
        return {**self.databases, HOME: self.home_dsn}

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str], wanted_databases: Mapping[str, str]
    ) -> DriverSettings:
        """Read the settings.

        Args:
            environment: The process's environment.
            wanted_databases: The databases that the pipeline declares.

        Raises:
            ConfigurationError: ``ASSERTIONS_OFF``, ``SETTING_MISSING`` or
                ``SETTING_INVALID``, or as ``chosen_profile`` and ``parse_databases``
                do.
        """
        if sys.flags.optimize:
            raise ConfigurationError(
                "ASSERTIONS_OFF",
                saw="Python runs without assertions, because of -O or PYTHONOPTIMIZE.",
                why="Assertions check a batch against the locked ledger before its "
                "COMMIT.",
                fix="Unset PYTHONOPTIMIZE.",
            )
        bootstrap = environment.get("TALLYWEIR_KAFKA_BOOTSTRAP")
        if not bootstrap:
            raise ConfigurationError(
                "SETTING_MISSING",
                saw="TALLYWEIR_KAFKA_BOOTSTRAP is not set.",
                why="The driver does not know where Kafka is.",
                fix="Set it to host:port, or start the driver with tallyweir run.",
            )
        archive = environment.get("TALLYWEIR_CLASS_ARCHIVE")
        profile = chosen_profile(environment)
        return cls(
            kafka_bootstrap=bootstrap,
            home_dsn=read_setting(environment, HOME_DSN_VARIABLE) or "",
            databases=parse_databases(environment, wanted_databases),
            spark_master=environment.get(
                "TALLYWEIR_SPARK_MASTER",
                f"local[{profile.tasks_per_core * (os.cpu_count() or 1)}]",
            ),
            spark_jars=environment.get("TALLYWEIR_SPARK_JARS", ""),
            class_archive=Path(archive) if archive else None,
            state_directory=Path(
                environment.get("TALLYWEIR_STATE_DIR", ".tallyweir")
            ).absolute(),
            batch_offsets_max=_whole(
                environment, "TALLYWEIR_BATCH_OFFSETS_MAX", profile.batch_offsets_max
            ),
            small_batch_offsets_max=_whole(
                environment,
                "TALLYWEIR_SMALL_BATCH_OFFSETS_MAX",
                SMALL_BATCH_OFFSETS_MAX,
                lowest=0,
            ),
            driver_memory=environment.get(
                "TALLYWEIR_DRIVER_MEMORY", profile.driver_memory
            ),
            executors=profile.spark_settings,
            claims_port=_whole(
                environment, "TALLYWEIR_CLAIMS_PORT", 0, highest=_PORT_MAX
            ),
        )

    def fresh_directory(self, kind: str, pipeline: str, claim: str) -> Path:
        """Make the directory of a claim, and delete those of earlier claims.

        If an older driver still works in one of them, it notices, and it is fenced
        anyway.
        """
        parent = self.state_directory / kind / pipeline
        if parent.is_dir():
            for former in parent.iterdir():
                shutil.rmtree(former, ignore_errors=True)
        directory = parent / claim
        directory.mkdir(parents=True)
        return directory


def _whole(
    environment: Mapping[str, str],
    name: str,
    default: int,
    *,
    lowest: int = 1,
    highest: int | None = None,
) -> int:
    text = environment.get(name)
    if text is None:
        return default
    number = int(text) if text.isdecimal() else -1
    if number < lowest or (highest is not None and number > highest):
        bound = "" if highest is None else f" and at most {highest}"
        raise ConfigurationError(
            "SETTING_INVALID",
            saw=f"{name} is {text!r}.",
            why=f"It must be a whole number of at least {lowest}{bound}.",
            fix="Correct it, or unset it to use the default.",
        )
    return number


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
