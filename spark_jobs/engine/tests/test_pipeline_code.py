"""What Spark's workers get of a Python pipeline file: its code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tallyweir.spark_jobs.engine.pipeline_code import load_with_code

_FILE = """
from datetime import timedelta
from tallyweir import Append, Pipeline, Source

LIMIT = 10

def transform(events):
    return events.withColumn("doubled", events["value"] * 2)

pipeline = Pipeline(
    name="views",
    source=Source(
        topic="page-views",
        schema="page_view.v1",
        event_id="event_id",
        event_time="viewed_at",
        watermark_delay=timedelta(minutes=1),
    ),
    transform=transform,
    outputs=(Append(table="views", columns=("event_id", "doubled")),),
)
"""


def _write(folder: Path, text: str = _FILE, name: str = "views.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_functions_travel_by_value_with_the_modules_beside_the_file(
    tmp_path: Path,
) -> None:
    """A worker has neither the file nor what lies beside it."""
    (tmp_path / "sent_along.py").write_text("FACTOR = 3\n")
    text = _FILE.replace("LIMIT = 10", "import sent_along\nLIMIT = 10").replace(
        "return events",
        "return [e * sent_along.FACTOR for e in events]\n    return events",
    )
    pipeline = load_with_code(_write(tmp_path, text))
    from pyspark import cloudpickle  # noqa: PLC0415 - it takes a moment

    pickled = cloudpickle.dumps(pipeline.transform)  # type: ignore[no-untyped-call]
    code = f"import pickle; print(pickle.loads({pickled!r})([1, 2]))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "[3, 6]" == done.stdout.strip(), done.stderr
