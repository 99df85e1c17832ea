"""The crash matrix of updates and rollbacks, with a driver at work beside them.

The cases are made from ``VersionPoint``, so a new point is swept without a new test.
Each change is a process of its own, killed at one side of one point.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Self

import pytest

from integration_tests.harness.postgres_driver import PostgresDriver, query
from integration_tests.harness.version_changer import change_and_die
from integration_tests.harness.versioned_windows import (
    FIRST,
    LAYOUTS,
    SECOND,
    change,
    go_back,
    layout_in_force,
    numbers_of,
    publish,
)
from tallyweir.sinks.faultpoints import Side, VersionPoint
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.naming import state_table
from tallyweir.sinks.protocol.errors import ConfigurationError, FencedError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: Forked from a process that has loaded everything and has no threads: to start Python
#: anew takes longer than a change.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["integration_tests.harness.version_changer"])

_TIMEOUT_S = 120.0
_COUNTED = "SELECT coalesce(sum(events), 0)::bigint FROM by_origin"
_READ = "SELECT coalesce(sum(next_offset), 0)::bigint FROM tallyweir.partition_progress"
_STATE = """
SELECT attname::text FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
"""


class _WorkingDriver:
    """Publishes until it is told to stop; fenced, it starts over as what is in force.

    That is what a supervisor does which has the new file.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._stopped = threading.Event()
        self._published = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._running = self._pool.submit(self._run)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._running.result(_TIMEOUT_S)
        self._pool.shutdown()

    def await_published(self) -> None:
        """Return once it has published a batch since now."""
        self._published.clear()
        assert self._published.wait(_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._work(layout_in_force(self._dsn))
            except FencedError:
                continue
            except ConfigurationError as error:
                # The version may have changed since it looked.
                if error.code not in {"VERSION_SUPERSEDED", "UPDATE_NEEDED"}:
                    raise

    def _work(self, layout: PipelineLayout) -> None:
        driver = PostgresDriver(dsn=self._dsn, layout=layout)
        try:
            at_s = 0
            while not self._stopped.is_set():
                publish(driver, at_s % 40, 2, numbers_of(layout, 2, at_s))
                self._published.set()
                at_s += 1
        finally:
            driver.home.close()


def _check(dsn: str) -> PipelineLayout:
    """Hold everything against the one version that is in force."""
    layout = layout_in_force(dsn)
    ((counted,),), ((read,),) = query(dsn, _COUNTED), query(dsn, _READ)
    assert counted == read
    ((number,),) = query(dsn, "SELECT pipeline_number FROM tallyweir.pipeline")
    (output,) = layout.outputs
    assert isinstance(output, WindowTable)
    state = state_table(number, output.table).as_string()
    kept = {name for (name,) in query(dsn, _STATE, state)}
    assert {column.name for column in output.staging_columns} == kept
    return layout


def _die(dsn: str, kind: str, point: VersionPoint, side: Side) -> None:
    process = _PROCESSES.Process(target=change_and_die, args=(dsn, kind, point, side))
    process.start()
    process.join(_TIMEOUT_S)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("beside", ["nobody", "a driver"])
@pytest.mark.parametrize("kind", ["update", "rollback"])
def test_a_change_that_dies_leaves_one_version_in_force(
    home_dsn: str, kind: str, beside: str
) -> None:
    """The former one up to the COMMIT, the new one from it on; every count is kept."""
    driver = PostgresDriver(dsn=home_dsn, layout=FIRST)
    publish(driver, 0, 3, [3])
    if kind == "rollback":
        change(home_dsn, SECOND)
    before = layout_in_force(home_dsn)
    (after,) = [layout for layout in LAYOUTS if layout is not before]
    swept = 0
    for point in VersionPoint:
        for side in Side:
            if beside == "a driver":
                with _WorkingDriver(home_dsn) as working:
                    working.await_published()
                    _die(home_dsn, kind, point, side)
                    working.await_published()
            else:
                _die(home_dsn, kind, point, side)
            is_done = (point, side) == (VersionPoint.VERSION_IN_FORCE, Side.AFTER)
            assert _check(home_dsn) is (after if is_done else before), (point, side)
            swept += 1
    assert 2 * len(VersionPoint) == swept
    # Called again it is told so, and the way on is open.
    again = partial(change, home_dsn, SECOND)
    if kind == "rollback":
        again = partial(go_back, home_dsn, 1)
    with pytest.raises(ConfigurationError, match="VERSION_IN_FORCE"):
        again()
    publish(PostgresDriver(dsn=home_dsn, layout=after), 0, 2, numbers_of(after, 2, 9))
    _check(home_dsn)
