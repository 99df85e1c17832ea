"""One task's rows, each in the database of the branch that publishes it."""

from __future__ import annotations

from types import TracebackType
from typing import Self, cast

import pyarrow as pa
import pytest

from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.staging.staging_writer import StagingWriter, TaskStaging

_COLUMNS = (Column(name="x", postgres_type="bigint"),)


class _Writer:
    """Keeps in a list what a writer would do to its database."""

    def __init__(self, database: str, done: list[str], failing: set[str]) -> None:
        self._database = database
        self._done = done
        self._failing = failing
        self.rows: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._done.append(f"begin {self._database}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ending = "commit" if kind is None else "rollback"
        self._done.append(f"{ending} {self._database}")
        if f"{ending} {self._database}" in self._failing:
            raise OSError(self._database)

    def copy(self, table: str, columns: tuple[Column, ...], rows: pa.Table) -> None:
        assert columns == _COLUMNS
        self.rows[table] = self.rows.get(table, 0) + rows.num_rows


class _Databases:
    def __init__(self, *failing: str) -> None:
        self.done: list[str] = []
        self._failing = set(failing)

    def open_writer(self, database: str) -> StagingWriter:
        return cast(StagingWriter, _Writer(database, self.done, self._failing))


def _rows(count: int) -> pa.Table:
    return pa.table({"x": pa.array(range(count), pa.int64())})


def test_each_branch_is_staged_in_its_database_under_its_name() -> None:
    """Branches of one database share a writer; votes tell their tables apart."""
    databases = _Databases()
    with TaskStaging(databases.open_writer) as staging:
        for branch, count in [("home", 1), ("home.1", 2), ("b.0", 3), ("b.1", 4)]:
            staging.copy(branch, "output_0", _COLUMNS, _rows(count))
        staging.copy("b.0", "output_0", _COLUMNS, _rows(5))
    assert {
        "output_0": 1,
        "output_0@home.1": 2,
        "output_0@b.0": 8,
        "output_0@b.1": 4,
    } == staging.rows
    assert ["begin home", "begin b"] == databases.done[:2]
    assert ["commit b", "commit home"] == sorted(databases.done[2:])


def test_a_database_without_rows_is_not_touched() -> None:
    """No connection is opened, so a database that is away holds nobody up."""
    databases = _Databases()
    with TaskStaging(databases.open_writer) as staging:
        staging.copy("b.0", "output_0", _COLUMNS, _rows(0))
    assert ["begin home", "commit home"] == databases.done
    assert {} == staging.rows


@pytest.mark.parametrize("failing", ["commit home", "commit b", "commit c"])
def test_no_vote_is_given_unless_every_database_has_committed(failing: str) -> None:
    """Whichever commit fails, the task fails, and no writer is left open."""
    databases = _Databases(failing)

    def stage() -> None:
        with TaskStaging(databases.open_writer) as staging:
            staging.copy("b.0", "output_0", _COLUMNS, _rows(1))
            staging.copy("c.0", "output_0", _COLUMNS, _rows(1))

    with pytest.raises(OSError, match=failing.removeprefix("commit ")):
        stage()
    ended = [line.split()[1] for line in databases.done[3:]]
    assert ["b", "c", "home"] == sorted(ended)


def test_a_task_that_fails_commits_nowhere() -> None:
    """Also in the databases that already have its rows."""
    databases = _Databases()

    def stage() -> None:
        with TaskStaging(databases.open_writer) as staging:
            staging.copy("b.0", "output_0", _COLUMNS, _rows(1))
            raise LookupError

    with pytest.raises(LookupError):
        stage()
    assert ["begin home", "begin b", "rollback b", "rollback home"] == databases.done
