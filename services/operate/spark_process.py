"""Runs modules of ``spark_jobs`` as processes, and reads what they found.

One describes the version that a pipeline file would run as, the other replays it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallyweir.sinks.postgres.audit.replay.replay_receipt import ReplayVerdict
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


#: The verdict if every row was computed again and is the same.
VERIFIED = ReplayVerdict.VERIFIED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The result of a replay.

    Attributes:
        exit_code: Exit code of the process; 0 and 1 have a receipt.
        receipt: The receipt as ``ReplayReceipt`` writes it; None without one.
    """

    exit_code: int
    receipt: Mapping[str, Any] | None


def run_replay(
    pipeline_file: Path, environment: Mapping[str, str], *arguments: str
) -> ReplayResult:
    """Replay a pipeline; its progress goes to stderr.

    Raises:
        KeyboardInterrupt: Once the process, which Ctrl-C reaches too, has dropped its
            scratch databases.
    """
    command = [sys.executable, "-m", "tallyweir.spark_jobs.replay", str(pipeline_file)]
    with subprocess.Popen(
        [*command, *arguments],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            written, _ = process.communicate()
        except KeyboardInterrupt:
            process.wait()
            raise
    lines = [line for line in written.splitlines() if line.startswith("{")]
    return ReplayResult(
        exit_code=process.returncode,
        receipt=json.loads(lines[-1]) if lines else None,
    )
