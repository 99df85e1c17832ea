"""A replay as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sinks.postgres.audit.replay.replay_receipt import ReplayVerdict

#: Said where every row was computed again and is the same.
VERIFIED = ReplayVerdict.VERIFIED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """How a replay has ended.

    Attributes:
        exit_code: Of the process; 0 and 1 have a receipt.
        receipt: As ``ReplayReceipt`` writes it; None without one.
    """

    exit_code: int
    receipt: Mapping[str, Any] | None


def run_replay(
    pipeline_file: Path, environment: Mapping[str, str], *arguments: str
) -> ReplayResult:
    """Replay a pipeline; what it says of its progress goes to stderr.

    Raises:
        KeyboardInterrupt: Once the process, which Ctrl-C reaches too, has dropped its
            scratch databases.
    """
    command = [sys.executable, "-m", "spark_jobs.replay", str(pipeline_file)]
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
