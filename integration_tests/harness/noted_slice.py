"""What a program finds in a slice of a world's topic, as the cells of a notebook do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from integration_tests.harness.driver_world import DriverWorld
from tallyweir.services.notebook.jupyter import notebook_environment
from tallyweir.services.process.endpoints import Endpoints
from tallyweir.sinks.postgres.server.databases import DATABASES_VARIABLE


def noted(
    world: DriverWorld,
    program: str,
    *arguments: str,
    which: Sequence[str] = ("--records=100",),
    databases: Mapping[str, str] | None = None,
) -> Any:  # noqa: ANN401 - what the program prints
    """Capture a slice and run a program on it; return the JSON of its last line.

    Args:
        world: The world.
        program: Python, whose first argument is the directory of the slice.
        arguments: Its further arguments.
        which: The options that choose the records.
        databases: Connection strings of the databases beside the home, by name.
    """
    endpoints = Endpoints(
        kafka_bootstrap=world.topic.bootstrap, home_dsn=world.home_dsn
    )
    environment = notebook_environment(endpoints)
    environment[DATABASES_VARIABLE] = json.dumps(dict(databases or {}))
    directory = world.directory / "slice"
    capture = ["-m", "tallyweir.spark_jobs.notebook", str(world.pipeline_file), *which]
    _run([*capture, f"--output={directory}"], environment)
    said = _run(["-c", program, str(directory), *arguments], environment)
    return json.loads(said.splitlines()[-1])


def _run(arguments: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
