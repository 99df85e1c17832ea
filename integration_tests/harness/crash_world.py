"""A pipeline of numbers over real databases, its light drivers, and what must hold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from integration_tests.harness.light_driver import BATCH, INJECTED, TABLE
from integration_tests.harness.postgres_driver import execute, query
from tallyweir.sinks.faultpoints import FaultPoint, Side
from tallyweir.sinks.postgres.schema.migrations import migrate

_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 120.0
_FENCED = 76

#: Points that a batch passes only if it touches other databases.
BRANCH_POINTS = frozenset(
    {
        FaultPoint.BRANCH_PREPARED,
        FaultPoint.ALL_PREPARED,
        FaultPoint.BRANCH_COMMITTED,
        FaultPoint.ALL_COMMITTED,
    }
)
#: Points that only a pipeline with functions passes; test_keyed_crashes is there.
_KEYED_POINTS = frozenset({FaultPoint.KEYS_STAGED, FaultPoint.KEYS_VOTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to a driver, once, in its second batch."""

    point: FaultPoint
    side: Side
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} {self.side.value} {self.point.value}"


def all_faults(kind: str) -> list[Fault]:
    """List the faults of a kind, in the order of the protocol."""
    return [
        Fault(point=point, side=side, kind=kind)
        for point in FaultPoint
        for side in Side
        if point not in _KEYED_POINTS
    ]


class CrashWorld:
    """One pipeline and its databases.

    Args:
        home_dsn: Fresh and migrated.
        databases: The others, fresh, by name.
    """

    def __init__(self, home_dsn: str, databases: dict[str, str]) -> None:
        self.home_dsn = home_dsn
        self.databases = databases
        #: Faults that really happened.
        self.suffered = 0
        self._until = 0

    def suffer(self, fault: Fault) -> None:
        """Start a driver with a fault in it, and see that the fault happened."""
        self._until += 4 * BATCH
        driver = self._start(fault)
        if fault.kind == "hang":
            self._await_stopped(driver, fault)
            # The successor works while the hung one knows nothing of it.
            self.recover()
            os.kill(driver.pid, signal.SIGCONT)
        _, text = driver.communicate(timeout=_TIMEOUT_S)
        allowed = {
            "kill": {-signal.SIGKILL},
            "hang": {_FENCED},
            "reset": {0},
            "error": {1},
        }[fault.kind]
        assert driver.returncode in allowed, f"{fault}: {driver.returncode}\n{text}"
        if fault.kind == "error":
            assert INJECTED in text, text
        self.suffered += 1
        self.check(str(fault))

    def recover(self) -> None:
        """Let a driver without faults finish; then everything must be there once."""
        driver = self._start(None)
        _, text = driver.communicate(timeout=_TIMEOUT_S)
        assert driver.returncode == 0, text
        self.check("recovered")
        assert list(range(self._until)) == sorted(self._numbers())
        assert [] == self.prepared()
        ((sequence, last),) = query(
            self.home_dsn,
            "SELECT through.sequence, last_sequence "
            "FROM tallyweir.visible_through AS through "
            "JOIN tallyweir.pipeline USING (pipeline)",
        )
        assert sequence == last

    def check(self, when: str) -> None:
        """Hold what is visible in all databases against the home's offsets."""
        numbers = self._numbers()
        twice = [number for number, count in Counter(numbers).items() if count > 1]
        assert not twice, f"{when}: {twice} are there twice"
        # Offsets first: whatever is committed before them must be visible now.
        ((visible,),) = query(
            self.home_dsn,
            "SELECT coalesce(max(next_offset), 0) FROM tallyweir.visible_offset",
        )
        ((stored,),) = query(
            self.home_dsn,
            "SELECT coalesce(max(next_offset), 0) FROM tallyweir.partition_progress",
        )
        lost = set(range(visible)) - set(numbers)
        assert not lost, f"{when}: {sorted(lost)} are lost"
        early = [number for number in numbers if number >= stored]
        assert not early, f"{when}: {early} are there but not decided"

    def prepared(self) -> list[tuple[str]]:
        """List what is prepared in any of the databases."""
        return [
            row
            for dsn in (self.home_dsn, *self.databases.values())
            for row in query(
                dsn,
                "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()",
            )
        ]

    def _numbers(self) -> list[int]:
        return [
            row[0]
            for dsn in (self.home_dsn, *self.databases.values())
            if query(dsn, "SELECT to_regclass('numbers') IS NOT NULL") == [(True,)]
            for row in query(dsn, f"SELECT number FROM {TABLE}")
        ]

    def _start(self, fault: Fault | None) -> subprocess.Popen[str]:
        orders = {
            "home": self.home_dsn,
            "databases": self.databases,
            "until": self._until,
            "fault": None
            if fault is None
            else {
                "point": fault.point.value,
                "side": fault.side.value,
                "kind": fault.kind,
            },
        }
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "integration_tests.harness.light_driver"),
                json.dumps(orders),
            ],
            cwd=_ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _await_stopped(self, driver: subprocess.Popen[str], fault: Fault) -> None:
        _, status = os.waitpid(driver.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"{fault}: {status}"


@contextmanager
def crash_world(server_dsn: str, names: Sequence[str]) -> Iterator[CrashWorld]:
    """Make a world with fresh databases on one server, and drop them afterwards."""
    suffix = uuid.uuid4().hex[:10]
    made = {name: f"crash_{name}_{suffix}" for name in ("home", *names)}
    dsns = {name: make_conninfo(server_dsn, dbname=db) for name, db in made.items()}
    with psycopg.connect(server_dsn, autocommit=True) as admin:
        for database in made.values():
            admin.execute(
                sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database))
            )
    home_dsn = dsns.pop("home")
    migrate(home_dsn)
    world = CrashWorld(home_dsn, dsns)
    try:
        yield world
    finally:
        for dsn in (home_dsn, *dsns.values()):
            for (gid,) in query(
                dsn,
                "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()",
            ):
                execute(dsn, f"ROLLBACK PREPARED '{gid}'")
        with psycopg.connect(server_dsn, autocommit=True) as admin:
            for database in made.values():
                admin.execute(
                    sql.SQL("DROP DATABASE {} WITH (FORCE)").format(
                        sql.Identifier(database)
                    )
                )
