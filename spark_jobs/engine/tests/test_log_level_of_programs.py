"""Every program of this package refuses a level of logging that nobody knows."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "arguments",
    [
        ("tallyweir.spark_jobs", "none.yaml"),
        ("tallyweir.spark_jobs.batch", "none.yaml", "--run=one", "--input=none.csv"),
        ("tallyweir.spark_jobs.notebook", "none.yaml", "--output=none", "--records=1"),
        ("tallyweir.spark_jobs.describe_version", "none.yaml"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_misspelt_level_is_an_error_with_its_code(arguments: tuple[str, ...]) -> None:
    """Told like any other, before the pipeline file is looked at."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env={**os.environ, "TALLYWEIR_LOG_LEVEL": "inof"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 78 == done.returncode, done.stderr
    assert done.stderr.startswith("SETTING_INVALID\n"), done.stderr
