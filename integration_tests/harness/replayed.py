"""Replays of a world's pipeline, through the command that people use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.watched_driver import spark_jars

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """How ``verify --replay`` ended.

    Attributes:
        exit_code: Of the command.
        receipt: The replay's.
        told: What it wrote to stderr.
    """

    exit_code: int
    receipt: Mapping[str, Any]
    told: str

    @property
    def verdict(self) -> str:
        return str(self.receipt["verdict"])

    def part(self, name: str) -> Mapping[str, Any]:
        (found,) = (one for one in self.receipt["parts"] if one["name"] == name)
        return dict(found)

    @property
    def unlike(self) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Finding and key of each row that is not the same, by part."""
        return {
            part["name"]: [(row["finding"], row["key"]) for row in part["rows"]]
            for part in self.receipt["parts"]
            if part["rows"]
        }

    @property
    def findings(self) -> dict[str, list[str]]:
        """How the rows that are not the same stand to the replay's, by part."""
        return {
            name: [finding for finding, _ in rows] for name, rows in self.unlike.items()
        }


def replay(
    world: DriverWorld, *arguments: str, environment: Mapping[str, str] | None = None
) -> Replayed:
    """Verify a world's pipeline by replay; it must get as far as a receipt."""
    done = command(
        world,
        *("verify", str(world.pipeline_file), "--replay", "--json", *arguments),
        environment=environment,
    )
    assert done.stdout.startswith("{"), done.stderr
    receipt = json.loads(done.stdout)
    return Replayed(
        exit_code=done.returncode, receipt=receipt["replay"], told=done.stderr
    )


def command(
    world: DriverWorld, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of ``tallyweir`` in a world, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tallyweir.services.cli", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=_environment(world) | dict(environment or {}),
    )


def started(world: DriverWorld, *arguments: str) -> subprocess.Popen[str]:
    """Start a command of ``tallyweir`` in a world, as a terminal does."""
    return subprocess.Popen(
        [sys.executable, "-m", "tallyweir.services.cli", *arguments],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C reaches all of a process group, and must not reach the test's.
        start_new_session=True,
        env=_environment(world),
    )


def _environment(world: DriverWorld) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(_ROOT / "src"),
        "PYSPARK_PYTHON": sys.executable,
        "TALLYWEIR_KAFKA_BOOTSTRAP": world.topic.bootstrap,
        "TALLYWEIR_HOME_DSN": world.home_dsn,
        "TALLYWEIR_SPARK_JARS": spark_jars(),
        "TALLYWEIR_SPARK_MASTER": "local[2]",
    }
