"""The Helm chart has the numbers of the profiles that a driver chooses from.

Kubernetes must know them before a driver runs, so the chart has them as values, which
go before the driver's profile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tallyweir.spark_jobs.engine.driver_settings import NO_PROFILE, PROFILES

_CHART = Path(__file__).parents[3] / "docker" / "kubernetes" / "tallyweir"


def _values(profile: str | None = None) -> dict[str, Any]:
    """What Helm makes of the chart's values and those of a profile, as far as asked."""
    values = yaml.safe_load((_CHART / "values.yaml").read_text("utf-8"))
    executor = values["spark"]["executor"]
    driver = values["driver"]
    if profile is not None:
        file = _CHART / "profiles" / f"{profile}.yaml"
        given = yaml.safe_load(file.read_text("utf-8"))
        driver = {**driver, **given["driver"]}
        executor = {**executor, **given["spark"]["executor"]}
    return {
        "driver_memory": driver["memory"],
        "batch_offsets_max": driver["batchOffsetsMax"],
        "executor_cores": executor["cores"],
        "executor_memory": executor["memory"],
        "executor_overhead": executor["memoryOverhead"],
    }


def test_each_profile_has_its_file_in_the_chart() -> None:
    """And the chart has no other."""
    assert set(PROFILES) == {path.stem for path in (_CHART / "profiles").iterdir()}


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_of_the_chart_is_that_of_the_driver(name: str) -> None:
    """Heaps, cores and the size of a batch."""
    profile = PROFILES[name]
    assert _values(name) == {
        key: getattr(profile, key)
        for key in (
            "driver_memory",
            "batch_offsets_max",
            "executor_cores",
            "executor_memory",
            "executor_overhead",
        )
    }


def test_without_a_profile_a_driver_has_what_it_has_elsewhere() -> None:
    """What Spark gives an executor by itself is not for Kubernetes."""
    values = _values()
    assert NO_PROFILE.driver_memory == values["driver_memory"]
    assert NO_PROFILE.batch_offsets_max == values["batch_offsets_max"]
