"""A database that could not prepare branches is refused at the start, with the fix."""

from __future__ import annotations

import json
import uuid
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
from services.embedded.postgres import _SETTINGS, EmbeddedPostgres
from services.resolver.rounds import ResolverRound
from sinks.postgres.outputs import HOME
from sinks.postgres.preflight import (
    changes_sessions,
    check_participant,
    check_pooler,
    check_primary,
    read_server,
    try_tables,
)
from sinks.protocol.errors import ConfigurationError
from sinks.protocol.identity import Epoch
from sinks.protocol.identity import Sequence as SequenceNumber
from sinks.protocol.in_doubt import Claim, GlobalId

_OUTPUT = replace(append_table("numbers", number="bigint"), branches=("billing.0",))
_LAYOUT = layout_of(_OUTPUT)
_CLAIM = Claim(
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


def _try(dsn: str, table: str = "numbers", *, is_updated: bool = False) -> str | None:
    """Try one table, and hold that nothing of it is left."""
    before = query(dsn, f"SELECT count(*) FROM {table}")
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            notes = try_tables("billing", connection, {table: is_updated}, _CLAIM)
    finally:
        assert before == query(dsn, f"SELECT count(*) FROM {table}")
        assert [] == prepared(dsn)
    return notes[0] if notes else None


_NOTIFY = """
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN PERFORM pg_notify('numbers', 'changed'); RETURN NEW; END$$
"""
_TEMPORARY = """
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN CREATE TEMP TABLE IF NOT EXISTS scratch (n int); RETURN NEW; END$$
"""
_SWALLOW = """
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN RETURN NULL; END$$
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


def test_a_trigger_on_update_counts_where_rows_are_updated(billing_dsn: str) -> None:
    """Windows are inserted and updated; appended rows are not."""
    execute(
        billing_dsn,
        f"CREATE TABLE numbers ({_COLUMNS})",
        _NOTIFY,
        "CREATE TRIGGER tells AFTER UPDATE ON numbers "
        "FOR EACH ROW EXECUTE FUNCTION tell()",
    )
    assert _try(billing_dsn) is None
    with pytest.raises(ConfigurationError) as raised:
        _try(billing_dsn, is_updated=True)
    assert "PREPARE_REFUSED" == raised.value.code


@pytest.mark.parametrize(
    "statements",
    [
        "CREATE TABLE numbers (id serial PRIMARY KEY, number bigint UNIQUE)",
        "CREATE TABLE numbers (id int GENERATED ALWAYS AS IDENTITY, number bigint)",
        """
        CREATE TABLE numbers (number bigint, day timestamptz NOT NULL)
            PARTITION BY RANGE (day);
        CREATE TABLE numbers_all PARTITION OF numbers
            FOR VALUES FROM (MINVALUE) TO (MAXVALUE)
        """,
        """
        CREATE TABLE one (id bigint PRIMARY KEY);
        CREATE TABLE numbers (
            number bigint, of bigint REFERENCES one DEFERRABLE INITIALLY DEFERRED
        )
        """,
        """
        CREATE TYPE mood AS ENUM ('good', 'bad');
        CREATE DOMAIN code AS varchar(3) CHECK (VALUE <> '');
        CREATE TABLE numbers (
            a mood NOT NULL, b code NOT NULL, c uuid NOT NULL, d jsonb NOT NULL,
            e bytea NOT NULL, f int[] NOT NULL, g date NOT NULL, h inet NOT NULL,
            i interval NOT NULL, j int4range NOT NULL, k numeric(3, 2) NOT NULL,
            l char(2) NOT NULL, m boolean NOT NULL, n time NOT NULL, o real NOT NULL,
            p timestamp NOT NULL
        )
        """,
        """
        CREATE TABLE numbers (number bigint CHECK (number > 40000));
        INSERT INTO numbers VALUES (50000)
        """,
        """
        CREATE TABLE numbers (
            number bigint GENERATED ALWAYS AS (half * 2) STORED, half int
        )
        """,
    ],
    ids=[
        "serial and unique",
        "identity",
        "partitioned",
        "deferred foreign key",
        "every type",
        "copy of a row",
        "generated",
    ],
)
def test_a_table_that_can_take_part_passes(billing_dsn: str, statements: str) -> None:
    """A row was written and prepared, both as appended and as updated."""
    execute(billing_dsn, statements)
    assert _try(billing_dsn) is None
    assert _try(billing_dsn, is_updated=True) is None


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (
            "CREATE TABLE numbers (number bigint NOT NULL CHECK (number > 40000))",
            "check",
        ),
        (
            """
            CREATE TABLE one (id bigint PRIMARY KEY);
            CREATE TABLE numbers (
                number bigint NOT NULL REFERENCES one DEFERRABLE INITIALLY DEFERRED
            )
            """,
            "foreign key",
        ),
        (
            "CREATE TABLE numbers (number bigint);"
            + _SWALLOW
            + """;
            CREATE TRIGGER tells BEFORE INSERT ON numbers
                FOR EACH ROW EXECUTE FUNCTION tell()
            """,
            "took no row",
        ),
    ],
    ids=["check", "deferred foreign key", "trigger that swallows rows"],
)
def test_a_table_that_takes_no_row_of_ours_is_not_tried(
    billing_dsn: str, statements: str, why: str
) -> None:
    """That says nothing about the pipeline's rows, so it is a note and no refusal."""
    execute(billing_dsn, statements)
    note = _try(billing_dsn)
    assert note is not None
    assert note.startswith("numbers not tried: ")
    assert why in note


def test_a_role_needs_its_privileges_and_row_security_is_no_lack_of_them(
    billing_dsn: str, server_dsn: str
) -> None:
    """Policies refuse rows; a missing privilege refuses every batch."""
    role = f"clerk_{uuid.uuid4().hex[:12]}"
    execute(server_dsn, f"CREATE ROLE {role} LOGIN PASSWORD 'clerk'")
    try:
        execute(billing_dsn, f"CREATE TABLE numbers ({_COLUMNS})")
        dsn = make_conninfo(billing_dsn, user=role, password="clerk")
        with (
            psycopg.connect(dsn, autocommit=True) as connection,
            pytest.raises(ConfigurationError) as raised,
        ):
            try_tables("billing", connection, {"numbers": False}, _CLAIM)
        assert "POSTGRES_PERMISSION" == raised.value.code
        assert f'GRANT INSERT ON "numbers" TO "{role}";' == raised.value.fix
        execute(billing_dsn, raised.value.fix)
        with psycopg.connect(dsn, autocommit=True) as connection:
            assert () == try_tables("billing", connection, {"numbers": False}, _CLAIM)
        execute(
            billing_dsn,
            "ALTER TABLE numbers ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY few ON numbers USING (true) WITH CHECK (number > 40000)",
        )
        with psycopg.connect(dsn, autocommit=True) as connection:
            (note,) = try_tables("billing", connection, {"numbers": False}, _CLAIM)
        assert "row-level security policy" in note
        execute(billing_dsn, "DROP POLICY few ON numbers")
        execute(billing_dsn, "CREATE POLICY every ON numbers USING (true)")
        with psycopg.connect(dsn, autocommit=True) as connection:
            assert () == try_tables("billing", connection, {"numbers": False}, _CLAIM)
    finally:
        execute(billing_dsn, f"DROP OWNED BY {role}")
        execute(server_dsn, f"DROP ROLE {role}")


def test_a_locked_table_keeps_nobody_waiting(billing_dsn: str) -> None:
    """The start goes on; the batch will wait for the lock, or say who has it."""
    execute(billing_dsn, f"CREATE TABLE numbers ({_COLUMNS})")
    with psycopg.connect(billing_dsn) as owner:
        owner.execute("LOCK TABLE numbers IN SHARE MODE")
        with psycopg.connect(billing_dsn, autocommit=True) as connection:
            (note,) = try_tables("billing", connection, {"numbers": False}, _CLAIM)
    assert "numbers not tried: another transaction has a lock on it" == note


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


def test_doctor_looks_into_every_database_as_a_start_does(
    home_dsn: str,
    billing_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What would refuse a start fails there, with the same fix; nothing is left."""
    output = {"kind": "append", "table": "numbers", "databases": ["billing"]}
    layout = replace(_LAYOUT, definition=json.dumps({"outputs": [output]}))
    PostgresDriver(dsn=home_dsn, layout=layout, databases={"billing": billing_dsn})
    terminal = CommandLine(
        monkeypatch=monkeypatch,
        capsys=capsys,
        databases={HOME: home_dsn, "billing": billing_dsn},
    )

    def tables() -> dict[str, object]:
        checks = json.loads(terminal.run("doctor", "--json")[1])["checks"]
        (found,) = (check for check in checks if check["name"] == "billing tables")
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
