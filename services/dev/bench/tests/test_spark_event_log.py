"""Bytes shuffled are those that Spark's event log has of its tasks."""

from __future__ import annotations

import json

from tallyweir.services.dev.bench.world.resource_readings import sum_shuffled_bytes


def test_shuffled_bytes_are_what_all_tasks_wrote() -> None:
    """Other events have none, and a line that is still being written is left out."""
    log = [
        json.dumps({"Event": "SparkListenerJobEnd", "Job ID": 1}) + "\n",
        _task_end(700),
        json.dumps({"Event": "SparkListenerTaskEnd"}) + "\n",
        _task_end(42),
        _task_end(9)[:-8],
    ]
    assert 742 == sum_shuffled_bytes(log)


def _task_end(written: int) -> str:
    metrics = {"Shuffle Write Metrics": {"Shuffle Bytes Written": written}}
    event = {"Event": "SparkListenerTaskEnd", "Task Metrics": metrics}
    return json.dumps(event) + "\n"
