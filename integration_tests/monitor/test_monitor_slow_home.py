"""A home database that is slow keeps reads, and nothing else that the monitor does."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from integration_tests.harness.page_asker import PageAsker, asking
from integration_tests.harness.postgres_driver import query
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.services.monitor.home_reader import HomeReader
from tallyweir.services.monitor.read_room import AT_WORK_MAX, WAITING_MAX
from tallyweir.services.monitor.tokens import Role
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.protocol.errors import RetryableError

#: More than there is room for.
_READS = AT_WORK_MAX + WAITING_MAX + 20
#: A supervisor waits no longer for an answer.
_PATIENCE_S = 5.0
_SLOW = f"/api/pipelines/{PIPELINE}/dead-letters"


@contextmanager
def _locked(dsn: str, table: str) -> Iterator[None]:
    """Keep everybody from a table in the block."""
    with closing(psycopg.connect(dsn)) as holder:
        holder.execute(f"LOCK TABLE {table}")
        yield


@pytest.fixture
def asker(
    home_dsn: str, kafka_bootstrap: str, scenario: LedgerScenario, tmp_path: Path
) -> Iterator[PageAsker]:
    """A monitor with tokens."""
    assert scenario.sequence == 3
    with asking(home_dsn, kafka_bootstrap, tmp_path) as opened:
        yield opened


def test_reads_that_wait_keep_nothing_else(asker: PageAsker, home_dsn: str) -> None:
    """Neither acts, nor the page, nor who asks whether the process lives."""
    with (
        httpx.Client(base_url=asker.url, timeout=60, limits=_ALL) as crowd,
        ThreadPoolExecutor(_READS) as people,
    ):
        with _locked(home_dsn, "tallyweir.dead_letter"):
            reads = [people.submit(crowd.get, _SLOW) for _ in range(_READS)]
            done, _ = wait(reads, timeout=30, return_when=FIRST_COMPLETED)
            refused = done.pop().result()
            assert refused.status_code == 503
            assert refused.json()["code"] == "MONITOR_BUSY"
            # At once, and not because it has waited in vain.
            assert "wait already" in refused.json()["saw"]
            assert int(refused.headers["retry-after"]) > 0
            for path in ("/livez", "/metrics", "/", "/page/monitor.js", "/api/access"):
                answer = httpx.get(f"{asker.url}{path}", timeout=_PATIENCE_S)
                assert answer.status_code == 200, path
            httpx.get(f"{asker.url}/readyz", timeout=_PATIENCE_S)
            asker.client.timeout = httpx.Timeout(_PATIENCE_S)
            act = asker.post(PIPELINE, "pause", Role.OPERATOR, dry_run=True, reason="x")
            assert act.status_code == 200, act.text
            # That the reads were at the table all the while.
            assert query(home_dsn, _WAITING) == [(True,)]
        assert {one.result().status_code for one in reads} == {200, 503}
    assert asker.client.get(_SLOW).status_code == 200


_ALL = httpx.Limits(max_connections=_READS)
_WAITING = (
    "SELECT count(*) > 0 FROM pg_locks JOIN pg_stat_activity USING (pid) "
    "WHERE NOT granted AND application_name = 'tallyweir monitor'"
)


def test_a_read_that_takes_too_long_is_ended_and_not_asked_again(
    home_dsn: str, scenario: LedgerScenario
) -> None:
    """Also on a connection that was kept, which a server that went away leaves dead."""
    assert scenario.sequence == 3
    reader = HomeReader(home_dsn, statement_max_s=0.2)
    asked = 0

    def count(connection: Connection[TupleRow]) -> object:
        nonlocal asked
        asked += 1
        with translated("counting"), connection.transaction():
            return connection.execute("SELECT count(*) FROM tallyweir.batch").fetchone()

    with closing(reader):
        assert reader.read(count)
        with (
            _locked(home_dsn, "tallyweir.batch"),
            pytest.raises(RetryableError) as told,
        ):
            reader.read(count)
        assert (told.value.code, asked) == ("MONITOR_READ_SLOW", 2)
        assert reader.read(count)
