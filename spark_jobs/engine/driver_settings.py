"""The settings of a driver process, read once from its environment."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tallyweir.sinks.postgres.server.databases import parse_databases
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.settings import HOME_DSN_VARIABLE, read_setting
from tallyweir.spark_jobs.engine.profile import chosen_profile

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
        wrote, if any. state_directory: The directory of checkpoints, caches and logs;
        safe to delete
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
