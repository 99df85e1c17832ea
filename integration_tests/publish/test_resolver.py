"""The resolver service: finishes what is decided and what is orphaned, nothing else."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from psycopg.conninfo import make_conninfo
from structlog.testing import capture_logs

from integration_tests.harness.fresh_databases import (
    die_publishing,
    fresh_database,
    numbers,
    prepared,
)
from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    execute,
    layout_of,
    query,
)
from tallyweir.services.resolver.rounds import ResolverRound
from tallyweir.sinks.faultpoints import FaultPoint, Side
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.errors import RetryableError

_LAYOUT = layout_of(
    AppendTable(
        table="numbers",
        staging_table="output_0",
        event_columns=(Column(name="number", postgres_type="bigint"),),
        branches=("audit.0", HOME, "billing.0"),
    )
)


@pytest.fixture
def databases(home_dsn: str, server_dsn: str) -> Iterator[dict[str, str]]:
    """A home and two participants."""
    with (
        fresh_database(server_dsn, "audit") as audit,
        fresh_database(server_dsn, "billing") as billing,
    ):
        yield {HOME: home_dsn, "audit": audit, "billing": billing}


def _driver(databases: dict[str, str]) -> PostgresDriver:
    return PostgresDriver(dsn=databases[HOME], layout=_LAYOUT, databases=databases)


def _claim(databases: dict[str, str]) -> None:
    """Supersede the driver, as a new one does first of all."""
    home = PostgresHome(databases[HOME], _LAYOUT)
    home.claim_epoch()
    home.close()


def _is_published(publish: Callable[[], object]) -> bool:
    """Try once; False when another session was finishing a branch at that moment."""
    try:
        publish()
    except RetryableError as error:
        if error.code != "BRANCH_BUSY":
            raise
        return False
    return True


def _visible_through(databases: dict[str, str]) -> int:
    ((sequence,),) = query(
        databases[HOME], "SELECT sequence FROM tallyweir.visible_through"
    )
    return int(sequence)


def test_what_is_decided_is_committed_though_no_driver_starts(
    databases: dict[str, str],
) -> None:
    """The dead driver's claim is still the newest; its decision is enough."""
    die_publishing(
        _driver(databases), 0, FaultPoint.DECISION_COMMITTED, side=Side.AFTER
    )
    assert 0 == _visible_through(databases)
    with capture_logs() as lines:
        report = ResolverRound(databases, grace_s=0).run()
    assert ["audit.0", "billing.0"] == sorted(gid.branch for gid in report.committed)
    assert [[0], [1], [2]] == [
        numbers(databases[n]) for n in ("audit", HOME, "billing")
    ]
    assert 1 == _visible_through(databases)
    told = [line for line in lines if line["event"] == "branch committed"]
    assert [str(gid) for gid in report.committed] == [line["gid"] for line in told]
    assert {1} == {line["decided_as"] for line in told}
    assert not report.failures


def test_an_undecided_branch_is_left_to_its_driver_and_rolled_back_after_it(
    databases: dict[str, str],
) -> None:
    """Whether the newest driver lives nobody knows; once superseded it is fenced."""
    die_publishing(_driver(databases), 0, FaultPoint.ALL_PREPARED, side=Side.AFTER)
    left = ResolverRound(databases, grace_s=0).run()
    assert 2 == len(left.left)
    assert not [*left.committed, *left.rolled_back, *left.failures]
    assert 1 == len(prepared(databases["audit"])) == len(prepared(databases["billing"]))

    _claim(databases)
    report = ResolverRound(databases, grace_s=0).run()
    assert ["audit.0", "billing.0"] == sorted(gid.branch for gid in report.rolled_back)
    assert [] == prepared(databases["audit"]) == prepared(databases["billing"])
    assert [] == numbers(databases["audit"])


def test_what_a_branch_was_committed_as_already_is_noted(
    databases: dict[str, str],
) -> None:
    """A driver that died before it noted holds readers back, and nothing else."""
    die_publishing(_driver(databases), 0, FaultPoint.ALL_COMMITTED, side=Side.AFTER)
    assert [] == prepared(databases["audit"])
    assert 0 == _visible_through(databases)
    ResolverRound(databases, grace_s=0).run()
    assert 1 == _visible_through(databases)


def test_what_is_not_ours_is_never_touched(databases: dict[str, str]) -> None:
    """Other programs, other homes, and names that only look like ours."""
    driver = _driver(databases)
    own = driver.home.claim
    _claim(databases)
    foreign = [
        "order-17",
        f"tallyweir:{own.installation}:{own.pipeline_number}:1:something",
        f"tallyweir:{own.installation}:999:1:00000000:1:billing.0:1",
        f"tallyweir:{'f' * 12}:{own.pipeline_number}:1:00000000:1:billing.0:1",
    ]
    for gid in foreign:
        execute(databases["billing"], f"BEGIN; SELECT 1; PREPARE TRANSACTION '{gid}'")
    report = ResolverRound(databases, grace_s=0).run()
    assert not [*report.committed, *report.rolled_back, *report.failures]
    assert sorted(foreign) == prepared(databases["billing"])


def test_a_database_that_does_not_answer_stops_no_other(
    databases: dict[str, str],
) -> None:
    """The failure is told with its code; the rest is done."""
    die_publishing(
        _driver(databases), 0, FaultPoint.DECISION_COMMITTED, side=Side.AFTER
    )
    with capture_logs() as lines:
        report = ResolverRound(
            {**databases, "audit": make_conninfo(databases["audit"], port="1")},
            grace_s=0,
        ).run()
    assert ["billing.0"] == [gid.branch for gid in report.committed]
    assert ["POSTGRES_UNREACHABLE"] == report.failures
    (told,) = (line for line in lines if line["event"] == "database not looked into")
    assert ("audit", "error") == (told["database"], told["log_level"])
    assert 1 == len(prepared(databases["audit"]))


def test_a_database_that_was_not_given_is_warned_of_and_stops_no_other(
    databases: dict[str, str],
) -> None:
    """What is decided there waits; its name and the fix are told."""
    die_publishing(
        _driver(databases), 0, FaultPoint.DECISION_COMMITTED, side=Side.AFTER
    )
    given = {name: dsn for name, dsn in databases.items() if name != "audit"}
    with capture_logs() as lines:
        report = ResolverRound(given, grace_s=0).run()
    assert ["billing.0"] == [gid.branch for gid in report.committed]
    (told,) = (line for line in lines if line["event"] == "database unknown")
    assert ("audit", 1) == (told["database"], told["decided_branches"])
    assert 1 == len(prepared(databases["audit"]))


def test_two_names_of_one_database_confuse_nobody(databases: dict[str, str]) -> None:
    """Each branch is finished under its own name, once."""
    die_publishing(
        _driver(databases), 0, FaultPoint.DECISION_COMMITTED, side=Side.AFTER
    )
    aliased = {
        HOME: databases[HOME],
        "alias": databases["billing"],
        "billing": databases["billing"],
        "audit": databases["audit"],
    }
    report = ResolverRound(aliased, grace_s=0).run()
    assert ["audit.0", "billing.0"] == sorted(gid.branch for gid in report.committed)
    assert [] == report.failures


def test_a_young_branch_is_left_to_its_driver(databases: dict[str, str]) -> None:
    """Two who finish one branch at a time make the driver start over."""
    die_publishing(
        _driver(databases), 0, FaultPoint.DECISION_COMMITTED, side=Side.AFTER
    )
    report = ResolverRound(databases, grace_s=3600).run()
    assert [] == report.committed
    assert 1 == len(prepared(databases["audit"]))


def test_a_branch_in_doubt_for_long_raises_the_alarm(
    databases: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning first, an error line later, with what is known of it."""
    die_publishing(_driver(databases), 0, FaultPoint.ALL_PREPARED, side=Side.AFTER)
    levels = {}
    for alarm_after_s in (3600.0, 0.0):
        monkeypatch.setattr("tallyweir.services.resolver.rounds.WARN_AFTER_S", 0.0)
        monkeypatch.setattr(
            "tallyweir.services.resolver.rounds.ALARM_AFTER_S", alarm_after_s
        )
        with capture_logs() as lines:
            ResolverRound(databases, grace_s=0).run()
        told = [line for line in lines if line["event"] == "branch in doubt"]
        assert ["audit", "billing"] == [line["database"] for line in told]
        assert {"leave"} == {line["verdict"] for line in told}
        assert all("Start pipeline numbers" in line["fix"] for line in told)
        levels[alarm_after_s] = {line["log_level"] for line in told}
    assert {3600.0: {"warning"}, 0.0: {"error"}} == levels


def test_a_driver_at_work_is_not_disturbed(databases: dict[str, str]) -> None:
    """Rounds without grace race with every step of 20 batches; each counts once."""
    driver = _driver(databases)
    done = threading.Event()
    reports = []

    def resolve_again_and_again() -> None:
        while not done.is_set():
            reports.append(ResolverRound(databases, grace_s=0).run())

    thread = threading.Thread(target=resolve_again_and_again)
    thread.start()
    busy = 0
    try:
        for first in range(0, 60, 3):
            plan = driver.plan(3)
            rows = driver.positioned(plan, [(first + i,) for i in range(3)])
            staged = zip(
                ("output_0@audit.0", "output_0", "output_0@billing.0"),
                ([row] for row in rows),
                strict=True,
            )
            tally = driver.stage(plan, dict(staged))
            publish = partial(driver.publish, plan, tally)
            while not _is_published(publish):
                busy += 1
    finally:
        done.set()
        thread.join()
    for offset, name in enumerate(("audit", HOME, "billing")):
        assert list(range(offset, 60, 3)) == numbers(databases[name])
        assert [] == prepared(databases[name])
    assert reports, "no round ran"
    assert not any(report.rolled_back for report in reports)


def test_the_service_ends_cleanly_on_sigterm(databases: dict[str, str]) -> None:
    """One JSON line when it starts, one when it stops, and exit code 0."""
    die_publishing(
        _driver(databases), 0, FaultPoint.DECISION_COMMITTED, side=Side.AFTER
    )
    others = {name: dsn for name, dsn in databases.items() if name != HOME}
    process = subprocess.Popen(
        [sys.executable, "-m", "tallyweir.services.cli", "resolver", "--every", "1s"],
        env={
            **os.environ,
            "TALLYWEIR_HOME_DSN": databases[HOME],
            "TALLYWEIR_DATABASES": json.dumps(others),
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: queue.Queue[dict[str, object]] = queue.Queue()

    def read() -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                lines.put(json.loads(line))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert "resolver started" == lines.get(timeout=60)["event"]
        # The service waits until a branch is old enough to be nobody's at hand.
        committed = [lines.get(timeout=60) for _ in range(2)]
        assert {"branch committed"} == {line["event"] for line in committed}
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
        reader.join()
    assert "resolver stopped" == lines.get_nowait()["event"]
    assert [0] == numbers(databases["audit"])
