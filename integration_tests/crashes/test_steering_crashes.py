"""The crash matrix of acts: the act's process dies, or the driver that it fences does.

The cases are made from ``ActPoint`` and ``FaultPoint``, so a new point is swept without
a new test. Updates and rollbacks have points of their own, in test_version_crashes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest

from integration_tests.harness.light_driver import BATCH
from integration_tests.harness.postgres_driver import PIPELINE, query
from integration_tests.harness.steered_acts import ACTS, prepare
from integration_tests.harness.steered_pipeline import LAYOUTS
from integration_tests.harness.steered_world import FORK, SteeredWorld
from integration_tests.harness.whole_database import read_database
from tallyweir.sinks.faultpoints import ActPoint, FaultPoint, Side
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.server.naming import state_table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 120.0
#: Repeats within a batch and of former ones, and dead letters.
_LOG = [number % 11 for number in range(36)]
_UNTIL = 30

_STATE = """
SELECT attname::text FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
"""
_IN_FORCE = """
SELECT version.definition_hash, pipeline.definition_hash, pipeline_number
FROM tallyweir.pipeline_version AS version JOIN tallyweir.pipeline USING (pipeline)
WHERE pipeline = %s ORDER BY version DESC LIMIT 1
"""
_NOTED = """
SELECT kind FROM (
    SELECT split_part(kind, ' ', -1) AS kind, done_at FROM tallyweir.act
    WHERE pipeline = %s
    UNION ALL
    SELECT 'discard', discarded_at FROM tallyweir.discarded_pipeline
) AS noted ORDER BY done_at DESC LIMIT 1
"""
_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""

#: A batch of one database passes these.
_POINTS = (
    FaultPoint.PLANNED,
    FaultPoint.ROWS_STAGED,
    FaultPoint.VOTED,
    FaultPoint.DECISION_COMMITTED,
    FaultPoint.SEALED,
)
#: Of acts that claim nothing, those that they pass.
_UNCLAIMED = {
    "fork": {ActPoint.NOTED, ActPoint.IN_FORCE},
    "discard": set(ActPoint) - {ActPoint.CLAIMED},
}
_STEERED = [
    "update",
    "restore",
    *(
        pytest.param(act, marks=pytest.mark.long)
        for act in ("rollback", "reset", "fork")
    ),
]


@pytest.fixture
def world(home_dsn: str, tmp_path: Path) -> Iterator[SteeredWorld]:
    """A pipeline whose topic has all of its records."""
    made = SteeredWorld(dsn=home_dsn, directory=tmp_path, log=list(_LOG))
    yield made
    made.close()


@pytest.mark.parametrize(
    "side", [Side.AFTER, pytest.param(Side.BEFORE, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("act", [a for a in ACTS if a not in {"update", "rollback"}])
def test_an_act_killed_at_any_point_is_done_or_never_was(
    world: SteeredWorld, act: str, side: Side
) -> None:
    """Up to the COMMIT not a row is another one, not even a claim; then all are."""
    prepare(world, act)
    before = read_database(world.dsn)
    # A switch is two acts in one transaction, so it reaches each point twice.
    times = (1, 2) if act == "switch" else (1,)
    for point in [one for one in ActPoint if one in _UNCLAIMED.get(act, ActPoint)]:
        for number in times:
            _die(world.dsn, act, point, side, number)
            is_done = (point, side, number) == (
                ActPoint.IN_FORCE,
                Side.AFTER,
                times[-1],
            )
            assert is_done == (read_database(world.dsn) != before), (point, number)
            _check(world.dsn)
    if side is Side.BEFORE:
        with psycopg.connect(world.dsn) as home:
            ACTS[act](home, _LOG)
        _check(world.dsn)
    assert [(act,)] == query(world.dsn, _NOTED, FORK if act == "fork" else PIPELINE)


def _die(dsn: str, act: str, point: ActPoint, side: Side, number: int) -> None:
    orders = {
        "home": dsn,
        "act": act,
        "log": _LOG,
        "time": number,
        "point": point.value,
        "side": side.value,
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "integration_tests.harness.steered_acts"),
            json.dumps(orders),
        ],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("act", _STEERED)
def test_a_driver_killed_while_an_act_waits_for_it_has_published_nothing(
    world: SteeredWorld, act: str
) -> None:
    """The act has the pipeline's row as soon as the server has noticed."""
    prepare(world, act)
    with _Drivers(world) as drivers:
        driver = drivers.start(
            point=FaultPoint.DECISION_COMMITTED, side=Side.BEFORE, kind="hang"
        )
        drivers.await_stopped(driver)
        batches = query(world.dsn, "SELECT count(*) FROM tallyweir.batch")
        with ThreadPoolExecutor(1) as pool, psycopg.connect(world.dsn) as home:
            acting = pool.submit(ACTS[act], home, _LOG)
            if act != "fork":
                _await(lambda: query(world.dsn, _WAITING) != [(0,)])
                assert not acting.done()
                assert batches == query(
                    world.dsn, "SELECT count(*) FROM tallyweir.batch"
                )
            drivers.kill(driver)
            acting.result(_TIMEOUT_S)
        _check(world.dsn)
        drivers.finish(act)


@pytest.mark.parametrize("act", _STEERED)
def test_a_driver_killed_between_an_act_and_the_next_claim_leaves_nothing(
    world: SteeredWorld, act: str
) -> None:
    """The one that the act has fenced, and the next one ahead of its first batch."""
    prepare(world, act)
    with _Drivers(world) as drivers:
        driver = drivers.start(point=FaultPoint.VOTED, side=Side.AFTER, kind="hang")
        drivers.await_stopped(driver)
        with psycopg.connect(world.dsn) as home:
            ACTS[act](home, _LOG)
        done = read_database(world.dsn)
        drivers.kill(driver)
        assert done == read_database(world.dsn)
        _check(world.dsn)
        drivers.suffer(act, FaultPoint.PLANNED, Side.BEFORE)
        _check(world.dsn)
        drivers.finish(act)


@pytest.mark.parametrize(
    "points",
    [
        [FaultPoint.VOTED, FaultPoint.DECISION_COMMITTED],
        pytest.param(_POINTS, marks=pytest.mark.long),
    ],
    ids=["decision", "all"],
)
@pytest.mark.parametrize("act", _STEERED)
def test_a_driver_killed_in_its_first_batch_after_an_act_is_as_if_it_never_was(
    world: SteeredWorld, act: str, points: list[FaultPoint]
) -> None:
    """Or its batch counts; whoever comes next goes on from what the home holds."""
    prepare(world, act)
    with psycopg.connect(world.dsn) as home:
        ACTS[act](home, _LOG)
    with _Drivers(world) as drivers:
        for point in points:
            drivers.suffer(act, point, Side.AFTER)
            _check(world.dsn)
        drivers.finish(act)


class _Drivers:
    """Drivers of one pipeline, each a process; whoever is left is killed at the end."""

    def __init__(self, world: SteeredWorld) -> None:
        self._world = world
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def start(
        self,
        *,
        version: int | None = None,
        **fault: Any,  # noqa: ANN401 - orders
    ) -> subprocess.Popen[str]:
        """Start one, of the version that was in force before the act."""
        orders = {
            "home": self._world.dsn,
            "databases": {},
            "until": _UNTIL,
            "log": _LOG,
            "is_patient": True,
            "version": (
                self._world.first.model.versions[-1] if version is None else version
            ),
            "fault": {
                name: getattr(value, "value", value) for name, value in fault.items()
            },
        }
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "integration_tests.harness.steered_driver"),
                json.dumps(orders),
            ],
            cwd=_ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def await_stopped(self, process: subprocess.Popen[str]) -> None:
        """Wait until it hangs at its fault."""
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), status

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill it, and wait until the server has noticed."""
        process.kill()
        process.communicate(timeout=_TIMEOUT_S)
        _await(lambda: not _sessions(self._world.dsn))

    def suffer(self, act: str, point: FaultPoint, side: Side) -> None:
        """Let one of the version in force die in its first batch."""
        process = self.start(
            version=_version_after(self._world, act),
            point=point,
            side=side,
            kind="kill",
            batch=1,
        )
        _, text = process.communicate(timeout=_TIMEOUT_S)
        assert process.returncode == -signal.SIGKILL, text
        _await(lambda: not _sessions(self._world.dsn))

    def finish(self, act: str) -> None:
        """Let one of the version in force read the topic to its end."""
        process = self.start(version=_version_after(self._world, act))
        _, text = process.communicate(timeout=_TIMEOUT_S)
        assert process.returncode == 0, text
        _check(self._world.dsn)
        ((reached,),) = query(
            self._world.dsn,
            "SELECT next_offset FROM tallyweir.partition_progress WHERE pipeline = %s",
            PIPELINE,
        )
        assert _UNTIL <= reached < _UNTIL + BATCH
        rows = query(self._world.dsn, "SELECT number::integer FROM numbers")
        assert sorted(set(_LOG[:reached]) - {0}) == sorted(n for (n,) in rows)


def _version_after(world: SteeredWorld, act: str) -> int:
    return {"update": 1, "rollback": 0}.get(act, world.first.model.versions[-1])


def _sessions(dsn: str) -> int:
    ((sessions,),) = query(
        dsn,
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name LIKE 'tallyweir%' AND pid <> pg_backend_pid()",
    )
    return int(sessions)


def _await(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _check(dsn: str) -> None:
    """One version is in force, each event counts once, and the audit finds nothing."""
    for (pipeline,) in query(dsn, "SELECT pipeline FROM tallyweir.pipeline"):
        with psycopg.connect(dsn) as home:
            receipt = verify(home, pipeline)
        assert not receipt.failed, (pipeline, receipt.failed)
    ((newest, registered, number),) = query(dsn, _IN_FORCE, PIPELINE)
    assert newest == registered
    shadows = "SELECT FROM tallyweir.shadow_table WHERE pipeline = %s"
    if not query(dsn, shadows, PIPELINE):
        (layout,) = [one for one in LAYOUTS if one.definition_hash == newest]
        state = state_table(number, "by_window").as_string()
        kept = {name for (name,) in query(dsn, _STATE, state)}
        assert {c.name for c in layout.outputs[1].staging_columns} == kept
    numbers = query(dsn, "SELECT number FROM numbers")
    assert len(numbers) == len(set(numbers))
    ((counted,),) = query(dsn, "SELECT coalesce(sum(events), 0)::bigint FROM by_window")
    erased = query(dsn, "SELECT count(*) FROM tallyweir.act WHERE kind = 'erase'")
    assert counted - len(numbers) == erased[0][0]
