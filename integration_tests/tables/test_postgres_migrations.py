"""Migrations: once, whoever comes first, and whatever a killed process left."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow

from integration_tests.harness.fresh_databases import fresh_database
from integration_tests.harness.postgres_driver import execute, query
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario, failed
from tallyweir.services.cli.doctor.checks import Needs, check_database
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.catalog.catalog_reader import PostgresRunSource
from tallyweir.sinks.postgres.schema.migrations import migrate, migrate_participant
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy
from tallyweir.sinks.seen_ids.claim import RowClass
from tallyweir.sinks.seen_ids.round_claims import RoundClaims
from tallyweir.sinks.seen_ids.tests.catalog import AtOnce, ask, run_of

_NO_NEEDS = Needs(claims=None, branches=())
_APPLIED = "SELECT migration_id FROM tallyweir._yoyo_migration ORDER BY 1"
_ALL = [
    ("0001_ledger",),
    ("0002_conservation_view",),
    ("0003_branches",),
    ("0004_relay",),
    ("0005_publisher_without_ddl",),
    ("0006_conditions",),
    ("0007_keyed_state",),
    ("0008_batch_runs",),
    ("0009_guarantee",),
    ("0010_upsert",),
    ("0011_runs_without_shards",),
    ("0012_chunks",),
    ("0013_payload_hashes_anew",),
    ("0014_pause",),
    ("0015_steering",),
    ("0016_pipeline_versions",),
    ("0017_positions",),
    ("0018_measures",),
    ("0019_alerts",),
    ("0020_profiles",),
    ("0021_scaling",),
    ("0023_erasure",),
    ("0024_forks",),
    ("0025_redrive",),
    ("0026_receipt",),
    ("0027_driver_log",),
    ("0028_snapshots",),
    ("0029_drain",),
    ("0030_samples",),
    ("0031_gauges",),
    ("0032_batch_usage",),
    ("0033_hot_key_share",),
    ("0034_discarded_pipelines",),
    ("0035_rows_of_batches",),
    ("0036_late_events_kept",),
    ("0037_buckets_attached",),
    ("0041_table_owners",),
    ("0042_accepted_losses",),
    ("0043_exact_values",),
    ("0044_row_digests",),
    ("0045_registered_schemas",),
]


def test_what_refers_to_a_batch_is_found_by_an_index(empty_dsn: str) -> None:
    """A batch that is taken back would be looked for in all rows of its pipeline."""
    migrate(empty_dsn)
    without_index = query(
        empty_dsn,
        "SELECT conrelid::regclass::text FROM pg_constraint AS key "
        "WHERE contype = 'f' AND confrelid = 'tallyweir.batch'::regclass "
        "AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = conrelid "
        "AND (indkey::smallint[])[0:1] = conkey) ORDER BY 1",
    )
    # Of samples there is a row or two for each step.
    assert [("tallyweir.sample",)] == without_index


def test_a_second_run_changes_nothing(empty_dsn: str) -> None:
    """Each migration is applied once, and the installation's key stays."""
    migrate(empty_dsn)
    key = query(empty_dsn, "SELECT fingerprint_key FROM tallyweir.installation")
    migrate(empty_dsn)
    assert _ALL == query(empty_dsn, _APPLIED)
    assert key == query(empty_dsn, "SELECT fingerprint_key FROM tallyweir.installation")


def test_processes_that_start_together_migrate_once(empty_dsn: str) -> None:
    """One works, the others wait, and all find the schema in place."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=migrate, args=(empty_dsn,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [0, 0, 0, 0] == [process.exitcode for process in processes]
    assert _ALL == query(empty_dsn, _APPLIED)
    assert [(1,)] == query(empty_dsn, "SELECT count(*) FROM tallyweir.installation")


def test_a_process_killed_half_way_does_not_keep_the_next_from_migrating(
    empty_dsn: str,
) -> None:
    """The lock row that it leaves belongs to nobody alive and is broken."""
    migrate(empty_dsn)
    execute(
        empty_dsn,
        "DROP VIEW tallyweir.conservation",
        "DELETE FROM tallyweir._yoyo_migration "
        "WHERE migration_id = '0002_conservation_view'",
        "INSERT INTO tallyweir.yoyo_lock (locked, ctime, pid) VALUES (1, now(), 4711)",
    )
    migrate(empty_dsn)
    assert _ALL == query(empty_dsn, _APPLIED)
    assert [] == query(empty_dsn, "SELECT * FROM tallyweir.conservation")
    assert [] == query(empty_dsn, "SELECT pid FROM tallyweir.yoyo_lock")


@pytest.mark.parametrize(
    ("step", "schema", "migration"),
    [
        (migrate, "tallyweir", "0005_publisher_without_ddl"),
        (migrate_participant, "tallyweir_participant", "0002_state_schema"),
    ],
)
def test_open_windows_of_an_older_version_move_with_their_rows(
    empty_dsn: str, step: Callable[[str], tuple[str, ...]], schema: str, migration: str
) -> None:
    """Nothing else moves, and what has moved stays."""
    step(empty_dsn)
    execute(
        empty_dsn,
        "DROP SCHEMA tallyweir_state CASCADE",
        *(
            f"DROP FUNCTION {name}"
            for (name,) in query(
                empty_dsn,
                "SELECT oid::regprocedure::text FROM pg_proc "
                # The actor came later, and tables have him as their default.
                f"WHERE pronamespace = '{schema}'::regnamespace AND proname <> 'actor'",
            )
        ),
        f"DELETE FROM {schema}._yoyo_migration WHERE migration_id = '{migration}'",
        f"CREATE TABLE {schema}.window_state_1_abc AS SELECT 7 AS total",
        f"CREATE TABLE {schema}.windows (n integer)",
    )
    assert (migration,) == step(empty_dsn)
    moved = query(empty_dsn, "SELECT total FROM tallyweir_state.window_state_1_abc")
    assert [(7,)] == moved
    assert [] == query(empty_dsn, f"SELECT n FROM {schema}.windows")


def test_runs_of_every_shard_of_an_older_version_are_found(
    empty_dsn: str, tmp_path: Path
) -> None:
    """An older version filed the IDs of one batch and bucket in up to 16 runs."""
    migrate(empty_dsn)
    execute(
        empty_dsn,
        "ALTER TABLE tallyweir.seen_id_run DROP CONSTRAINT seen_id_run_pkey, "
        "ADD COLUMN shard integer NOT NULL CHECK (shard >= 0), "
        "ADD PRIMARY KEY (pipeline, bucket, shard, sequence)",
        "DELETE FROM tallyweir._yoyo_migration "
        "WHERE migration_id = '0011_runs_without_shards'",
        "INSERT INTO tallyweir.pipeline (pipeline, definition, definition_hash, "
        "shards, bucket_seconds) VALUES ('p', '{}', '', 16, 3600)",
        "SELECT tallyweir.create_pipeline_runs('p')",
        "SELECT tallyweir.create_bucket(pipeline_number, 3600) FROM tallyweir.pipeline",
    )
    shards = {0: [(1, 1), (9, 9)], 7: [(1, 2), (5, 5)], 15: [(2**64 - 1, 3)]}
    with psycopg.connect(empty_dsn) as connection:
        for shard, pairs in shards.items():
            run = run_of(pairs)
            connection.execute(
                "INSERT INTO tallyweir.seen_id_run (pipeline, bucket, shard, sequence, "
                "ids, first, last, fingerprints) "
                "VALUES ('p', 3600, %s, 4, %s, %s, %s, %s)",
                (shard, len(run), run.first, run.last, run.encode()[0]),
            )
    assert ("0011_runs_without_shards",) == migrate(empty_dsn)
    with connect(empty_dsn, application_name="test") as connection:
        view = CatalogCopy(tmp_path, AtOnce()).view(
            catalog=PostgresRunSource(connection, "p"),
            live_from_bucket=0,
            through_sequence=4,
        )
    asked = sorted(pair for pairs in shards.values() for pair in pairs)
    hi, lo = np.array([*asked[:2], (2, 2), *asked[2:]], dtype=np.uint64).T
    assert [True, True, False, True, True, True] == view.find(hi, lo).found.tolist()


def test_batches_of_an_older_version_are_of_the_definition_in_force(
    connection: psycopg.Connection[TupleRow], home_dsn: str
) -> None:
    """What becomes of late events is frozen for them, however it changes later."""
    scenario = LedgerScenario(connection=connection, late="drop").register()
    scenario.publish({0: "CLL"})
    scenario.publish({0: "CC"})
    execute(
        home_dsn,
        "ALTER TABLE tallyweir.batch_output DROP COLUMN late_kept",
        "DELETE FROM tallyweir._yoyo_migration "
        "WHERE migration_id = '0036_late_events_kept'",
    )
    assert ("0036_late_events_kept",) == migrate(home_dsn)
    scenario.change_late("side_table")
    scenario.publish({0: "L"})

    assert failed(verify(connection, PIPELINE)) == {}
    written = query(
        home_dsn,
        "SELECT sequence, late_kept FROM tallyweir.batch_output "
        "WHERE kind = 'window' ORDER BY 1",
    )
    assert [(1, False), (2, None), (3, True)] == written


def test_payload_hashes_of_an_older_version_make_no_conflicts(
    empty_dsn: str, tmp_path: Path
) -> None:
    """Its IDs stay known; nothing is held against hashes that mean something else."""
    migrate(empty_dsn)
    execute(
        empty_dsn,
        "DELETE FROM tallyweir._yoyo_migration "
        "WHERE migration_id = '0013_payload_hashes_anew'",
        "INSERT INTO tallyweir.pipeline (pipeline, definition, definition_hash, "
        "shards, bucket_seconds) VALUES ('p', '{}', '', 16, 3600)",
        "SELECT tallyweir.create_pipeline_runs('p')",
        "SELECT tallyweir.create_bucket(pipeline_number, 0) FROM tallyweir.pipeline",
    )
    run = run_of([(1, 1)], payload_hash=5)
    with psycopg.connect(empty_dsn) as connection:
        connection.execute(
            "INSERT INTO tallyweir.seen_id_run (pipeline, bucket, sequence, ids, "
            "first, last, fingerprints, payload_hashes) "
            "VALUES ('p', 0, 1, 1, %s, %s, %s, %s)",
            (run.first, run.last, *run.encode()),
        )
    assert ("0013_payload_hashes_anew",) == migrate(empty_dsn)
    with connect(empty_dsn, application_name="test") as connection:
        view = CatalogCopy(tmp_path, AtOnce()).view(
            catalog=PostgresRunSource(connection, "p"),
            live_from_bucket=0,
            through_sequence=1,
        )
    repeat, fresh = [(0, 1, 0, (1, 1), 6)], [(0, 2, 0, (2, 2), 6)]
    claims = RoundClaims(view)
    assert [RowClass.DUPLICATE] == ask(claims, repeat)
    assert [RowClass.SURVIVOR] == ask(claims, fresh)
    of_all_parts = query(
        empty_dsn,
        "SELECT DISTINCT attstorage::text FROM pg_attribute "
        "WHERE attname = 'payload_hashes' AND NOT attisdropped "
        "AND attrelid::regclass::text LIKE '%seen_id_run%'",
    )
    assert [("e",)] == of_all_parts


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"password": "wrong"}, "POSTGRES_LOGIN_REFUSED"),
        ({"user": "nobody_here"}, "POSTGRES_LOGIN_REFUSED"),
        ({"dbname": "nowhere"}, "POSTGRES_LOGIN_REFUSED"),
    ],
)
def test_a_login_that_cannot_work_asks_for_a_change(
    empty_dsn: str, change: dict[str, str], code: str
) -> None:
    """Trying again would not help, so the operator is told, never the password."""
    dsn = psycopg.conninfo.make_conninfo(empty_dsn, **change)
    with pytest.raises(ConfigurationError) as raised:
        migrate(dsn)
    assert code == raised.value.code
    assert "wrong" not in str(raised.value)


@pytest.mark.parametrize("apply", [migrate, migrate_participant])
def test_a_database_that_cannot_hold_every_character_is_refused(
    server_dsn: str, apply: Callable[[str], object]
) -> None:
    """Before anything is made in it, and doctor says so too."""
    options = sql.SQL("ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    with fresh_database(server_dsn, "ascii", options) as dsn:
        with pytest.raises(ConfigurationError) as raised:
            apply(dsn)
        assert "DATABASE_ENCODING" == raised.value.code
        assert [] == query(
            dsn, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tallyweir%'"
        )
        checks = {check.name: check for check in check_database(HOME, dsn, _NO_NEEDS)}
        assert not checks["encoding"].ok
        assert "SQL_ASCII" in checks["encoding"].saw
