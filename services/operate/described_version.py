"""Describes the version that a pipeline file would run as, in a process with Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tallyweir.sinks.postgres.versions.version_plan import DescribedVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedFile:
    """The description of a pipeline file.

    Attributes:
        pipeline: Name of the pipeline.
        version: The version that it would run as.
    """

    pipeline: str
    version: DescribedVersion


def describe_file(
    pipeline_file: Path, environment: Mapping[str, str]
) -> DescribedFile | int:
    """Describe the version that a pipeline file would run as.

    Returns:
        Its version. If the file has a mistake, the process reports it on stderr, and
        this returns the exit code of the process.
    """
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tallyweir.spark_jobs.describe_version",
            str(pipeline_file),
        ],
        env=dict(environment),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        return done.returncode
    told = json.loads(done.stdout.splitlines()[-1])
    return DescribedFile(
        pipeline=told.pop("pipeline"), version=DescribedVersion(**told)
    )
