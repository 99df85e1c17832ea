"""A database that could not prepare branches is refused at the start, with the fix."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from integration_tests.harness.command_line import CommandLine
from integration_tests.harness.fresh_databases import fresh_database, prepared
from integration_tests.harness.postgres_driver import (
    PostgresDriver,
    append_table,
    execute,
    layout_of,
    query,
)
from tallyweir.services.local.embedded.postgres import _SETTINGS, EmbeddedPostgres
from tallyweir.services.resolver.rounds import ResolverRound
from tallyweir.sinks.postgres.branches.preflight import (
    changes_sessions,
    check_distinct,
    check_participant,
    check_pooler,
    check_primary,
    read_server,
)
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId

_OUTPUT = replace(append_table("numbers", number="bigint"), branches=("billing.0",))
_LAYOUT = layout_of(_OUTPUT)
_CLAIM = EpochClaim(
    installation="0" * 12, pipeline_number=1, epoch=Epoch(3), nonce="00000000"
)
_COLUMNS = (
    "number bigint, kafka_topic text, kafka_partition integer, kafka_offset bigint"
)


@pytest.fixture
def billing_dsn(server_dsn: str) -> Iterator[str]:
    """A participant, fresh."""
    with fresh_database(server_dsn, "billing") as dsn:
        yield dsn


_NOTIFY = """
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN PERFORM pg_notify('numbers', 'changed'); RETURN NEW; END$$
"""
_TEMPORARY = """
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN CREATE TEMP TABLE IF NOT EXISTS scratch (n int); RETURN NEW; END$$
"""


@pytest.mark.parametrize(
    ("function", "said"),
    [(_NOTIFY, "NOTIFY"), (_TEMPORARY, "temporary objects")],
    ids=["notify", "temporary table"],
)
def test_a_trigger_that_no_prepared_transaction_may_have_refuses_the_start(
    home_dsn: str, billing_dsn: str, function: str, said: str
) -> None:
    """The driver stops before a batch; the error names table and cause."""
    execute(
        billing_dsn,
        f"CREATE TABLE numbers ({_COLUMNS})",
        function,
        "CREATE TRIGGER tells AFTER INSERT ON numbers "
        "FOR EACH ROW EXECUTE FUNCTION tell()",
    )
    with pytest.raises(ConfigurationError) as raised:
        PostgresDriver(dsn=home_dsn, layout=_LAYOUT, databases={"billing": billing_dsn})
    assert "PREPARE_REFUSED" == raised.value.code
    assert "table numbers in database billing" in raised.value.saw
    assert said in raised.value.saw
    assert [] == prepared(billing_dsn)
    execute(billing_dsn, "DROP TRIGGER tells ON numbers")
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT, databases={"billing": billing_dsn})
    assert [] == query(billing_dsn, "SELECT FROM numbers")


def test_a_trial_that_a_crash_left_is_rolled_back_and_can_never_be_decided(
    home_dsn: str, billing_dsn: str
) -> None:
    """Its sequence is nobody's batch: the ledger itself refuses to decide it."""
    databases = {"billing": billing_dsn}
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT, databases=databases)
    trial = GlobalId(
        claim=driver.home.claim,
        sequence=SequenceNumber(0),
        branch="billing.0",
        attempt=1,
    )

    def leave() -> None:
        execute(
            billing_dsn,
            "BEGIN; INSERT INTO numbers (number) VALUES (1); "
            f"PREPARE TRANSACTION '{trial}'",
        )

    leave()
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        execute(
            home_dsn,
            "INSERT INTO tallyweir.batch_branch (pipeline, sequence, branch, gid) "
            f"VALUES ('numbers', 0, 'billing.0', '{trial}')",
        )
    # The driver itself, when it settles; a stranger may not, while it works.
    assert not ResolverRound({HOME: home_dsn, **databases}, grace_s=0).run().rolled_back
    driver.publisher.sweep()
    assert [] == prepared(billing_dsn)
    leave()
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT, databases=databases)
    assert [] == prepared(billing_dsn)
    assert [] == query(billing_dsn, "SELECT FROM numbers")


def test_a_branch_of_another_role_refuses_the_start(
    home_dsn: str, billing_dsn: str, server_dsn: str
) -> None:
    """Only its owner can finish it, and nothing after it may be published."""
    driver = PostgresDriver(
        dsn=home_dsn, layout=_LAYOUT, databases={"billing": billing_dsn}
    )
    claim = driver.home.claim
    role = f"clerk_{claim.installation}"
    gid = GlobalId(
        claim=claim, sequence=SequenceNumber(1), branch="billing.0", attempt=1
    )
    execute(server_dsn, f"CREATE ROLE {role} LOGIN PASSWORD 'clerk'")
    try:
        execute(billing_dsn, f"BEGIN; SELECT 1; PREPARE TRANSACTION '{gid}'")
        dsn = make_conninfo(billing_dsn, user=role, password="clerk")
        with pytest.raises(ConfigurationError) as raised:
            check_participant(dsn, "billing", [], 1, claim)
        assert "BRANCH_OWNER" == raised.value.code
        assert f"and we are {role}" in raised.value.saw
        # A superuser may finish it.
        check_participant(billing_dsn, "billing", [], 1, claim)
    finally:
        execute(server_dsn, f"DROP ROLE {role}")


@pytest.fixture
def small_server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, to be set otherwise."""
    server = EmbeddedPostgres(tmp_path / "postgres")
    server.start()
    yield server
    server.stop()


def test_the_slots_of_a_server_are_counted(
    small_server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others use does not serve us; the error has the number that does."""
    for slots, foreign, needed in ((0, 0, 4), (3, 0, 4), (4, 0, None), (4, 1, 5)):
        small_server.stop()
        monkeypatch.setitem(_SETTINGS, "max_prepared_transactions", str(slots))
        small_server.start()
        dsn = small_server.dsn
        if foreign:
            execute(dsn, "BEGIN; SELECT 1; PREPARE TRANSACTION 'order-17'")
        if needed is None:
            check_participant(dsn, "billing", [], 2, _CLAIM)
            continue
        with pytest.raises(ConfigurationError) as raised:
            check_participant(dsn, "billing", [], 2, _CLAIM)
        assert "PREPARE_SLOTS" == raised.value.code
        assert f"SET max_prepared_transactions = {needed};" in raised.value.fix
        if foreign:
            execute(dsn, "ROLLBACK PREPARED 'order-17'")


def test_a_standby_is_refused(home_dsn: str) -> None:
    """It answers as the server would, so that the fix is told before a write fails."""
    with psycopg.connect(home_dsn, autocommit=True) as connection:
        facts = read_server(connection, "tallyweir:")
    check_primary("billing", facts)
    with pytest.raises(ConfigurationError) as raised:
        check_primary("billing", replace(facts, is_standby=True))
    assert "POSTGRES_STANDBY" == raised.value.code


@pytest.mark.parametrize(
    ("before", "others", "after", "changes"),
    [
        (11, 12, 11, False),  # a session each
        (11, 11, 12, True),  # the second got the first's, which had to take another
        (11, 12, 13, True),
        (11, 11, 11, True),
    ],
)
def test_a_pooler_in_transaction_mode_is_told_by_whose_session_serves_whom(
    before: int, others: int, after: int, *, changes: bool
) -> None:
    """One connection, one session: else its settings and locks are another's."""
    assert changes is changes_sessions(before, others, after)


def test_a_connection_without_pooler_is_asked_no_further(home_dsn: str) -> None:
    """The server's own promise of its process is true, so nothing else is opened."""
    with psycopg.connect(home_dsn, autocommit=True) as connection:
        facts = read_server(connection, "tallyweir:")
        check_pooler("host=nowhere.invalid", HOME, connection, facts)
        # A promise that was wrong is looked into, and here it is no pooler.
        check_pooler(home_dsn, HOME, connection, replace(facts, backend=1))


def _register(home_dsn: str, billing_dsn: str) -> None:
    """Let home know a pipeline that publishes in billing."""
    output = {"kind": "append", "table": "numbers", "databases": ["billing"]}
    layout = replace(_LAYOUT, definition=json.dumps({"outputs": [output]}))
    PostgresDriver(dsn=home_dsn, layout=layout, databases={"billing": billing_dsn})


def _doctor_says(terminal: CommandLine, name: str) -> list[dict[str, object]]:
    """Return doctor's checks of one name."""
    checks = json.loads(terminal.run("doctor", "--json")[1])["checks"]
    return [check for check in checks if check["name"] == name]


def test_doctor_looks_into_every_database_as_a_start_does(
    home_dsn: str,
    billing_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What would refuse a start fails there, with the same fix; nothing is left."""
    _register(home_dsn, billing_dsn)
    terminal = CommandLine(
        monkeypatch=monkeypatch,
        capsys=capsys,
        databases={HOME: home_dsn, "billing": billing_dsn},
    )

    def tables() -> dict[str, object]:
        (found,) = _doctor_says(terminal, "billing tables")
        assert [] == query(billing_dsn, "SELECT FROM numbers")
        assert [] == prepared(billing_dsn)
        return dict(found)

    assert tables()["ok"]
    execute(
        billing_dsn,
        _NOTIFY,
        "CREATE TRIGGER tells AFTER INSERT ON numbers "
        "FOR EACH ROW EXECUTE FUNCTION tell()",
    )
    refused = tables()
    assert not refused["ok"]
    assert str(refused["saw"]).startswith("PREPARE_REFUSED: ")


def test_two_names_of_one_database_are_refused(home_dsn: str, billing_dsn: str) -> None:
    """Each would drop the other's staging; other spellings do not hide it."""
    check_distinct({HOME: home_dsn, "billing": billing_dsn})
    again = make_conninfo(billing_dsn, host="localhost", application_name="other")
    with pytest.raises(ConfigurationError) as raised:
        check_distinct({HOME: home_dsn, "billing": billing_dsn, "invoices": again})
    assert "DATABASE_TWICE" == raised.value.code
    assert "billing and invoices" in raised.value.saw


def test_doctor_names_the_direct_endpoint_of_a_pooled_one(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here the server itself answers under such a name, so it is a warning."""
    name = "ep-cool-1-pooler.eu-central-1.aws.neon.tech"
    pooled = make_conninfo(home_dsn, host=name, hostaddr="127.0.0.1")
    databases = {HOME: pooled}
    terminal = CommandLine(monkeypatch=monkeypatch, capsys=capsys, databases=databases)
    (found,) = _doctor_says(terminal, "pooler")
    assert found["ok"]
    assert "Neon's PgBouncer" in str(found["saw"])
    assert "ep-cool-1.eu-central-1.aws.neon.tech" in str(found["fix"])


def test_doctor_tells_two_names_of_one_database(
    home_dsn: str,
    billing_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only where one pipeline uses both."""
    _register(home_dsn, billing_dsn)

    def told(**databases: str) -> list[str]:
        terminal = CommandLine(
            monkeypatch=monkeypatch, capsys=capsys, databases=databases
        )
        return [str(check["saw"]) for check in _doctor_says(terminal, "databases")]

    assert [] == told(home=home_dsn, billing=billing_dsn, unused=billing_dsn)
    (said,) = told(home=home_dsn, billing=home_dsn)
    assert said.startswith("DATABASE_TWICE: home and billing")
