"""Publishing to a real server: what is staged, and what a reader sees, step by step."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from psycopg import sql

from integration_tests.harness.postgres_driver import (
    TP,
    PostgresDriver,
    append_table,
    execute,
    layout_of,
    query,
)
from tallyweir.services.dev.chaos.plan import Cut, CutSide, Statement
from tallyweir.services.dev.chaos.wire_proxy import wire_proxy
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.staging.attempt_register import ATTEMPTS
from tallyweir.sinks.protocol.coordinator import Coordinator, VotedBatch
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import (
    OutcomeUnknownError,
    RetryableError,
)
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.ports import RowsRejectedError
from tallyweir.sinks.protocol.recovery import StoredPosition

_LAYOUT = layout_of(append_table("numbers", number="bigint"))
_NUMBERS = "SELECT number FROM numbers ORDER BY kafka_offset"


def _staged_rows(driver: PostgresDriver) -> list[tuple[int, int]]:
    statement = sql.SQL(
        "SELECT attempt, number FROM {} AS staged JOIN {} AS registered "
        "ON registered.xmin = staged.xmin"
    ).format(driver.staging_table("output_0"), driver.staging_table(ATTEMPTS))
    with connect(driver.dsn, application_name="test reader") as connection:
        return sorted(connection.execute(statement).fetchall())


def test_publishing_moves_the_voted_rows_and_no_others(home_dsn: str) -> None:
    """A reader sees no row before, and those of the attempts that voted after."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(2)
    rows = driver.positioned(plan, [(1,), (2,)])
    driver.stage_rows("output_0", driver.positioned(plan, [(8,), (9,)]), attempt=70)
    tally = driver.stage(plan, {"output_0": rows})
    assert [(1, 1), (1, 2), (70, 8), (70, 9)] == _staged_rows(driver)
    assert [] == query(home_dsn, _NUMBERS)

    assert PublishOutcome.COMMITTED is driver.publish(plan, tally)

    assert [(1,), (2,)] == query(home_dsn, _NUMBERS)


def test_the_same_attempt_number_of_another_epoch_is_not_visible(
    home_dsn: str,
) -> None:
    """Each driver counts attempts from the start, in staging tables of its own."""
    old = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = old.plan(2)
    old.stage(plan, {"output_0": old.positioned(plan, [(8,), (9,)])})
    with connect(home_dsn, application_name="test reader") as reader:
        # Holding the old staging tables keeps them from being dropped.
        table = old.staging_table("output_0")
        reader.execute(f"SELECT FROM {table.as_string(reader)}".encode())
        new = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
        assert [(1, 8), (1, 9)] == _staged_rows(old)
        assert PublishOutcome.COMMITTED is new.append([(1,), (2,)])
    assert [(1,), (2,)] == query(home_dsn, _NUMBERS)


def test_staging_of_older_epochs_is_dropped_unless_it_is_locked(home_dsn: str) -> None:
    """A claim does not wait for who still reads old staging; a later one drops it."""
    schemas = (
        "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tallyweir_stage_%' "
        "ORDER BY 1"
    )
    first = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    with connect(home_dsn, application_name="test reader") as reader:
        table = first.staging_table("output_0")
        reader.execute(f"SELECT FROM {table.as_string(reader)}".encode())
        PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
        assert ["tallyweir_stage_1_1", "tallyweir_stage_1_2"] == [
            name for (name,) in query(home_dsn, schemas)
        ]
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    assert [("tallyweir_stage_1_3",)] == query(home_dsn, schemas)


def test_a_superseded_driver_leaves_its_successor_the_staging(home_dsn: str) -> None:
    """It may be superseded while it starts, before it drops what others left."""
    first = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    second = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    first.home.drop_superseded_staging()
    assert PublishOutcome.COMMITTED is second.append([(1,)])


def test_every_table_moves_together_or_not_at_all(home_dsn: str) -> None:
    """A statement that fails last takes back rows, ledger, offsets and watermark."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    driver.append([(1,)])
    snapshot = (
        "SELECT last_sequence, watermark, next_offset, event_time_max, "
        "(SELECT count(*) FROM tallyweir.batch), "
        "(SELECT count(*) FROM tallyweir.batch_partition), "
        "(SELECT count(*) FROM tallyweir.batch_output), "
        "(SELECT count(*) FROM tallyweir.seen_id_run), (SELECT count(*) FROM numbers) "
        "FROM tallyweir.pipeline JOIN tallyweir.partition_progress USING (pipeline)"
    )
    before = query(home_dsn, snapshot)
    execute(
        home_dsn,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'out of memory' USING ERRCODE = '53200'; END $$",
        "CREATE TRIGGER refuse BEFORE UPDATE ON tallyweir.pipeline "
        "FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    plan = driver.plan(2)
    tally = driver.stage(
        plan,
        {
            "output_0": driver.positioned(plan, [(2,), (3,)]),
            "seen_id_run": [(0, 1, b"a" * 16, b"a" * 16, b"a" * 16, None)],
        },
        event_time_max_us=1_700_000_000_000_000,
        buckets=frozenset({0}),
    )

    with pytest.raises(RetryableError):
        driver.publish(plan, tally)
    assert before == query(home_dsn, snapshot)

    execute(home_dsn, "DROP TRIGGER refuse ON tallyweir.pipeline")
    assert PublishOutcome.COMMITTED is driver.publish(plan, tally)
    ((sequence, watermark, next_offset, *counts),) = query(home_dsn, snapshot)
    assert (2, 3) == (sequence, next_offset)
    assert watermark is not None
    assert [2, 2, 2, 1, 3] == counts[1:]


def _publish_cut(side: CutSide) -> Cut:
    return Cut(statement=Statement.PUBLISH_COMMIT, side=side, skip=0)


@pytest.mark.parametrize("side", CutSide)
def test_a_lost_answer_to_commit_counts_the_batch_once(
    home_dsn: str, side: CutSide
) -> None:
    """Whether COMMIT is lost, or its answer, publishing again ends the same."""
    with wire_proxy(home_dsn) as proxy:
        driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT, home_dsn=proxy.dsn)
        driver.append([(0,)])
        plan = driver.plan(3)
        rows = driver.positioned(plan, [(1,), (2,), (3,)])
        tally = driver.stage(plan, {"output_0": rows})
        proxy.arm(_publish_cut(side))

        with pytest.raises(OutcomeUnknownError) as raised:
            driver.publish(plan, tally)

        assert "COMMIT_UNKNOWN" == raised.value.code
        # The server may still be at it when the client hears that nothing comes.
        assert proxy.await_cut(30.0)
        assert proxy.disarm()
        if side is CutSide.BEFORE:
            assert [(0,)] == query(home_dsn, _NUMBERS)
        if side is CutSide.AFTER:
            assert [(0,), (1,), (2,), (3,)] == query(home_dsn, _NUMBERS)
        outcome = driver.publish(plan, tally)
        driver.home.close()
    assert {
        CutSide.BEFORE: outcome is PublishOutcome.COMMITTED,
        CutSide.AFTER: outcome is PublishOutcome.ALREADY_COMMITTED,
        CutSide.RESET: True,
    }[side]
    assert [(0,), (1,), (2,), (3,)] == query(home_dsn, _NUMBERS)
    assert [(1,), (2,)] == query(
        home_dsn, "SELECT sequence FROM tallyweir.batch ORDER BY 1"
    )


def test_the_coordinator_asks_again_by_itself(home_dsn: str) -> None:
    """One lost answer does not end the driver."""
    with wire_proxy(home_dsn) as proxy:
        driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT, home_dsn=proxy.dsn)
        plan = driver.plan(1)
        tally = driver.stage(plan, {"output_0": driver.positioned(plan, [(1,)])})
        proxy.arm(_publish_cut(CutSide.AFTER))
        voted = VotedBatch(plan=plan, tally=tally)
        outcome = Coordinator(driver.publisher).publish(voted).outcome
        driver.home.close()
    assert PublishOutcome.ALREADY_COMMITTED is outcome
    assert [(1,)] == query(home_dsn, _NUMBERS)


def test_a_broken_connection_before_commit_is_retryable(home_dsn: str) -> None:
    """A server that ends the session has published nothing; the next try works."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(1)
    tally = driver.stage(plan, {"output_0": driver.positioned(plan, [(1,)])})
    execute(
        home_dsn,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name LIKE 'tallyweir p%'",
    )
    with pytest.raises(RetryableError) as raised:
        driver.publish(plan, tally)
    assert OutcomeUnknownError is not type(raised.value)
    assert PublishOutcome.COMMITTED is driver.publish(plan, tally)
    assert [(1,)] == query(home_dsn, _NUMBERS)


def test_jsonb_columns_are_moved_as_jsonb(home_dsn: str) -> None:
    """Staged as text, stored as jsonb, NULL included."""
    layout = layout_of(append_table("documents", body="jsonb"))
    driver = PostgresDriver(dsn=home_dsn, layout=layout)
    driver.append([('{"a": [1, null], "b": "ü"}',), (None,), ("null",)])
    assert [({"a": [1, None], "b": "ü"}, "object"), (None, None), (None, "null")] == (
        query(
            home_dsn,
            "SELECT body, jsonb_typeof(body) FROM documents ORDER BY kafka_offset",
        )
    )


def test_buckets_of_the_catalog_are_made_when_needed_and_dropped_when_past(
    home_dsn: str,
) -> None:
    """A bucket is one table; negative ones exist too; only what ended is dropped."""
    tables = (
        "SELECT relname FROM pg_class WHERE relname LIKE 'seen_id_run_p1_b%' "
        "AND relkind = 'r' ORDER BY 1"
    )
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(0)
    buckets = frozenset({-3600, 0, 3600})
    run = (1, b"a" * 16, b"a" * 16, b"a" * 16, None)
    tally = driver.stage(
        plan,
        {"seen_id_run": [(bucket, *run) for bucket in buckets]},
        buckets=buckets,
    )
    assert PublishOutcome.COMMITTED is driver.publish(plan, tally)
    names = ["seen_id_run_p1_b0", "seen_id_run_p1_b3600", "seen_id_run_p1_bm3600"]
    assert names == [name for (name,) in query(home_dsn, tables)]

    driver.home.tidy(live_from_us=3600 * 1_000_000 - 1)
    assert names[:2] == [name for (name,) in query(home_dsn, tables)]
    driver.home.tidy(live_from_us=3600 * 1_000_000)
    assert names[1:2] == [name for (name,) in query(home_dsn, tables)]
    # Another driver finds the buckets that are there and can still drop them.
    successor = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    successor.home.tidy(live_from_us=7200 * 1_000_000)
    assert [] == query(home_dsn, tables)


def test_tidying_gives_up_where_somebody_reads(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgetting old IDs never waits long and never fails a batch."""
    monkeypatch.setattr("tallyweir.sinks.postgres.server.locks.RESPITE_S", 0.0)
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    plan = driver.plan(0)
    tally = driver.stage(plan, {}, buckets=frozenset({0}))
    driver.publish(plan, tally)
    with connect(home_dsn, application_name="test reader") as reader:
        reader.execute("SELECT FROM tallyweir.seen_id_run")
        driver.home.tidy(live_from_us=7200 * 1_000_000)
        assert [(1,)] == query(home_dsn, "SELECT count(*) FROM tallyweir.batch")
    driver.home.tidy(live_from_us=7200 * 1_000_000)
    assert [(False,)] == query(
        home_dsn, "SELECT to_regclass('tallyweir.seen_id_run_p1_b0') IS NOT NULL"
    )


def test_staging_is_emptied_after_many_rows(
    home_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published rows do not pile up, and the batch that is staged meanwhile stays."""
    monkeypatch.setattr(
        "tallyweir.sinks.postgres.staging.staging_tables.STAGED_ROWS_KEPT", 2
    )
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    driver.append([(1,), (2,)])
    driver.append([(3,)])
    driver.home.tidy(live_from_us=None)
    assert [(2, 3)] == _staged_rows(driver)
    driver.append([(4,), (5,)])
    driver.sequence += 1
    driver.stage_rows("output_0", [(6, TP.topic, TP.partition, 5)], attempt=70)
    driver.home.tidy(live_from_us=None)
    assert [(2, 3), (70, 6)] == _staged_rows(driver)
    driver.sequence -= 1
    assert [] == _staged_rows(driver)
    registered = driver.staging_table(ATTEMPTS).as_string()
    assert [] == query(home_dsn, f"SELECT FROM {registered}")
    driver.append([(6,)])
    assert [(1,), (2,), (3,), (4,), (5,), (6,)] == query(home_dsn, _NUMBERS)


def test_a_pipeline_goes_on_filing_its_ids_as_it_began(home_dsn: str) -> None:
    """In other buckets IDs that were seen would look new, whatever the horizon."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    execute(home_dsn, "UPDATE tallyweir.pipeline SET bucket_seconds = 60")
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    assert 60 == driver.home.layout.bucket_seconds


def test_the_positions_of_new_partitions_are_noted_once(home_dsn: str) -> None:
    """Noting a beginning again never moves a position."""
    driver = PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    for offset in (5, 9):
        start = StoredPosition(topic_id="id-of-the-topic", next_offset=offset)
        driver.home.register_positions({TP: start})
    assert 5 == driver.home.read_progress().positions[TP].next_offset


def test_concurrent_claims_all_get_their_own_epoch(home_dsn: str) -> None:
    """Drivers that start at the same moment are put in an order."""
    epochs: list[Epoch] = []
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)

    def claim() -> None:
        home = PostgresHome(home_dsn, _LAYOUT)
        epochs.append(home.claim_epoch())
        home.close()

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [2, 3, 4, 5] == sorted(epochs)


def test_commit_waits_for_the_disk_whatever_the_servers_default(home_dsn: str) -> None:
    """A committed offset must survive a crash of the server."""
    execute(
        home_dsn,
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', "
        "current_database()); END $$",
        "CREATE TABLE public.noted (value text)",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT "
        "INTO public.noted VALUES (current_setting('synchronous_commit')); "
        "RETURN NEW; END $$",
        "CREATE TRIGGER note AFTER INSERT ON tallyweir.batch "
        "FOR EACH ROW EXECUTE FUNCTION note()",
    )
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT).append([(1,)])
    assert [("on",)] == query(home_dsn, "SELECT value FROM noted")


def test_a_role_named_like_a_schema_gets_its_tables_in_public(home_dsn: str) -> None:
    """The search path is pinned; "$user" plays no part."""
    execute(
        home_dsn,
        "DO $$ BEGIN EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', current_user); "
        "END $$",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET search_path', "
        "current_database()); END $$",
    )
    with connect(home_dsn, application_name="test") as session:
        assert [("public",)] == session.execute("SHOW search_path").fetchall()
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT).append([(1,)])
    assert [("public",)] == query(
        home_dsn,
        "SELECT relnamespace::regnamespace::text FROM pg_class "
        "WHERE relname = 'numbers'",
    )


def test_a_changed_definition_is_registered_by_the_next_driver(home_dsn: str) -> None:
    """What the database holds is what the newest driver runs."""
    PostgresDriver(dsn=home_dsn, layout=_LAYOUT)
    changed = replace(
        _LAYOUT, definition='{"outputs": [], "changed": true}', definition_hash="new"
    )
    PostgresDriver(dsn=home_dsn, layout=changed)
    assert [({"outputs": [], "changed": True}, "new")] == query(
        home_dsn, "SELECT definition, definition_hash FROM tallyweir.pipeline"
    )


def test_users_columns_may_have_the_names_of_everyday_things(home_dsn: str) -> None:
    """Our own columns in staging cannot meet theirs, not even in bisection."""
    layout = layout_of(
        append_table("numbers", attempt="bigint", number="bigint", row="text")
    )
    driver = PostgresDriver(dsn=home_dsn, layout=layout)
    driver.append([(7, 1, "a"), (7, 2, "b")])
    execute(home_dsn, "ALTER TABLE public.numbers ADD CHECK (number <> 4)")
    plan = driver.plan(2)
    rows = driver.positioned(plan, [(9, 3, "c"), (9, 4, "d")])
    with pytest.raises(RowsRejectedError) as raised:
        driver.publish(plan, driver.stage(plan, {"output_0": rows}))
    assert [3] == [row.offset for row in raised.value.rows]
    assert [(7, 1, "a"), (7, 2, "b")] == query(
        home_dsn,
        'SELECT attempt, number, "row" FROM numbers ORDER BY kafka_offset',
    )
