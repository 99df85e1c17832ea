"""Profiles are compared with none, and by figures of every run."""

from __future__ import annotations

from services.dev.bench.profiles import WORKLOADS, Run, median_figures
from spark_jobs.engine.profile import PROFILES


def test_every_profile_is_compared_with_none() -> None:
    """In the same turns, by a workload that it is for."""
    compared = [set(workload.profiles) for workload in WORKLOADS.values()]
    assert all("none" in profiles for profiles in compared)
    assert set.union(*compared) == {"none", *PROFILES}


def test_figures_are_medians_and_no_rate_is_hidden() -> None:
    """One run that was disturbed does not make them."""
    runs = [
        Run(rate=rate, latency_s=rate / 100, jvm_mib=rate * 2, python_mib=rate * 3)
        for rate in (100, 40, 90)
    ]
    assert median_figures(runs) == {
        "events_per_second": 90,
        "rates": [100, 40, 90],
        "batch_latency_s": 0.9,
        "jvm_mib": 180,
        "python_mib": 270,
    }
