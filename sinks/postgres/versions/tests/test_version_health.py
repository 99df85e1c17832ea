"""When a version that is watched does worse than the one before it."""

from __future__ import annotations

import pytest

from tallyweir.sinks.postgres.versions.version_health import VersionHealth


def _health(**seen: int) -> VersionHealth:
    return VersionHealth(
        **{
            "version": 2,
            "former": 1,
            "watched_batches": 3,
            "batches": 1,
            "read": 1_000,
            "dead": 0,
            "former_read": 1_000,
            "former_dead": 0,
            **seen,
        }
    )


@pytest.mark.parametrize(
    ("seen", "is_worse"),
    [
        ({}, False),
        ({"dead": 50}, False),
        ({"dead": 51}, True),
        ({"dead": 51, "former_dead": 10}, False),
        ({"dead": 500, "former_dead": 450}, False),
        ({"former_read": 0, "dead": 60}, True),
        ({"read": 99, "dead": 99}, False),
        ({"read": 99, "dead": 99, "batches": 3}, True),
        ({"read": 100, "dead": 100}, True),
        ({"read": 0, "batches": 3}, False),
    ],
)
def test_a_version_is_worse_when_more_of_what_it_reads_dies(
    seen: dict[str, int],
    is_worse: bool,  # noqa: FBT001 - a column of the table above
) -> None:
    """Few records are no evidence, unless no more are to come."""
    worse = _health(**seen).find_worse()
    assert is_worse is (worse is not None)
    assert worse is None or "version 2" in worse
