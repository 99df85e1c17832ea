"""The crash matrix: each fault at each side of each point of the protocol.

The cases are made from ``FaultPoint``, so a new point is swept without a new test.
Every case runs in processes of its own on a real Postgres; the driver is the
production code from the coordinator down, without Spark and Kafka before it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration_tests.harness.crash_world import (
    BRANCH_POINTS,
    CrashWorld,
    all_faults,
    crash_world,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(
    params=[
        pytest.param((), id="one_database", marks=pytest.mark.long),
        pytest.param(("p1", "p2"), id="three_databases"),
    ]
)
def world(server_dsn: str, request: pytest.FixtureRequest) -> Iterator[CrashWorld]:
    """A pipeline over one database, or over three."""
    with crash_world(server_dsn, request.param) as made:
        yield made


@pytest.mark.parametrize(
    "kind",
    [
        "kill",
        *(pytest.param(n, marks=pytest.mark.long) for n in ("hang", "reset", "error")),
    ],
)
def test_a_fault_at_any_point_loses_and_doubles_nothing(
    world: CrashWorld, kind: str
) -> None:
    """After each fault the next driver finishes, and every number is there once."""
    swept = 0
    for fault in all_faults(kind):
        if fault.point in BRANCH_POINTS and not world.databases:
            continue
        world.suffer(fault)
        world.recover()
        swept += 1
    points = 9 if world.databases else 5
    assert 2 * points == swept == world.suffered
