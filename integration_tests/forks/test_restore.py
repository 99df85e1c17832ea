"""A restore takes a pipeline back to a snapshot, and takes nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.dying_connection import dying_after
from integration_tests.harness.postgres_driver import query
from integration_tests.ledger_scenario import (
    PIPELINE,
    TOPIC,
    LedgerScenario,
    failed,
)
from tallyweir.services.resolver.merging import merge_catalogs
from tallyweir.sinks.postgres.audit import accept_gaps, verify
from tallyweir.sinks.postgres.steering import (
    Restored,
    drop_snapshot,
    list_snapshots,
    reset_offsets,
    restore,
    take_snapshot,
)
from tallyweir.sinks.postgres.steering.restore import OF_BATCHES
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

Connection = psycopg.Connection[TupleRow]

#: Tables that name a batch and whose rows do not go with it: put back from the
#: snapshot, dealt with otherwise, or about what was done and not about what was read.
_NOT_OF_BATCHES = {
    *("keyed_state", "keyed_timer", "seen_id_run", "relay_cursor"),
    *("batch", "snapshot", "driver_log", "erased_result"),
}
_BRANCH = (
    "INSERT INTO tallyweir.batch_branch "
    "VALUES ('departures', 4, 'billing.0', 'gid', now())"
)
_ERASURE = (
    "WITH claim AS (INSERT INTO tallyweir.epoch_claim (pipeline, epoch, host, "
    "process_id, is_act) VALUES ('departures', 50, 'test', 1, true) RETURNING epoch) "
    "INSERT INTO tallyweir.act (pipeline, epoch, kind, reason, after_sequence) "
    "SELECT 'departures', epoch, 'erase', 'a test', 4 FROM claim"
)
_TABLES = (
    *("batch", "batch_partition", "batch_output", "dead_letter", "late_event"),
    *("expired_event", "duplicate_event", "filtered_event", "partition_progress"),
    *("accepted_gap", "offset_reset", "keyed_state", "keyed_timer", "outbox"),
)


def test_every_table_that_names_a_batch_goes_with_it_or_is_dealt_with_otherwise(
    home_dsn: str,
) -> None:
    """Whoever adds a table must say which."""
    naming = query(
        home_dsn,
        "SELECT relname::text "
        "FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid "
        "WHERE relnamespace = 'tallyweir'::regnamespace AND relkind IN ('r', 'p') "
        "AND NOT relispartition AND attname IN ('pipeline', 'sequence') "
        "GROUP BY relname HAVING count(*) = 2",
    )
    assert {name for (name,) in naming} == {*OF_BATCHES, *_NOT_OF_BATCHES}


def _broker(
    *, log_start: int = 0, topic_id: str = "id"
) -> dict[TopicPartition, BrokerPosition]:
    return {
        TopicPartition(TOPIC, partition): BrokerPosition(
            topic_id=topic_id, log_start_offset=log_start, log_end_offset=1000
        )
        for partition in (0, 3)
    }


def _take(scenario: LedgerScenario, name: str) -> dict[str, Any]:
    take_snapshot(scenario.connection, PIPELINE, name, reason="a test")
    return _everything(scenario.connection)


def _restore(scenario: LedgerScenario, name: str, *, dry_run: bool = False) -> Restored:
    restored = restore(
        scenario.connection,
        PIPELINE,
        name,
        _broker(),
        reason="a test",
        dry_run=dry_run,
    )
    if not dry_run:
        scenario.epoch += 1
        scenario.next_offsets = dict(
            scenario.connection.execute(
                "SELECT partition, next_offset FROM tallyweir.partition_progress"
            ).fetchall()
        )
        scenario.claim()
    return restored


def _everything(connection: Connection) -> dict[str, Any]:
    """Read all that a pipeline has, in order; IDs one by one, however they are kept."""
    found: dict[str, Any] = {
        table: sorted(
            connection.execute(f"SELECT t::text FROM tallyweir.{table} t").fetchall()
        )
        for table in _TABLES
    }
    found["rows"] = sorted(connection.execute("SELECT d::text FROM departures d"))
    found["watermark"] = connection.execute(
        "SELECT watermark FROM tallyweir.pipeline"
    ).fetchall()
    ids = set()
    for sequence, oldest, fingerprints, sequences in connection.execute(
        "SELECT sequence, oldest_sequence, fingerprints, sequences "
        "FROM tallyweir.seen_id_run WHERE NOT is_hidden"
    ):
        for place in range(len(fingerprints) // 16):
            counted = (sequences or b"")[4 * place : 4 * place + 4]
            of = sequence if oldest is None else oldest + int.from_bytes(counted)
            ids.add((fingerprints[16 * place : 16 * place + 16], of))
    found["ids"] = ids
    connection.commit()
    return found


def test_everything_goes_back_to_the_batch_and_numbers_go_on(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Twice, since the snapshot stays; what is read again comes out the same."""
    before = _take(scenario, "first")
    for _ in range(2):
        last = scenario.sequence
        scenario.publish({0: "CXDL", 3: "FECC"})
        scenario.publish({0: "CC"})
        again = _everything(connection)["rows"]
        restored = _restore(scenario, "first")
        assert (restored.after_sequence, restored.through_sequence) == (3, last + 2)
        assert (restored.batches, restored.records, restored.committed) == (2, 10, 6)
        assert restored.rows["departures"] == restored.ids == 6
        assert _everything(connection) == before
        assert failed(verify(connection, PIPELINE)) == {}
    scenario.publish({0: "CXDL", 3: "FECC"})
    scenario.publish({0: "CC"})
    assert failed(verify(connection, PIPELINE)) == {}
    assert scenario.sequence == 9
    assert len(_everything(connection)["rows"]) == len(again)


def test_a_dry_run_tells_the_same_and_changes_nothing(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Snapshots of later batches go with the restore, and not with its dry run."""
    _take(scenario, "first")
    scenario.publish({0: "CX"})
    now = _take(scenario, "later")
    told = _restore(scenario, "first", dry_run=True)
    assert told.dropped == ("later",)
    assert _everything(connection) == now
    assert [s.name for s in list_snapshots(connection, PIPELINE)] == ["first", "later"]
    assert _restore(scenario, "first") == told
    assert [s.name for s in list_snapshots(connection, PIPELINE)] == ["first"]


def test_ids_are_forgotten_one_by_one_from_chunks(
    connection: Connection, home_dsn: str, scenario: LedgerScenario
) -> None:
    """A merge after the snapshot has put IDs of both sides into the same rows."""
    _in_one_bucket(connection)
    before = _take(scenario, "first")
    for _ in range(3):
        scenario.publish({0: "CC"})
    _in_one_bucket(connection)
    connection.execute("UPDATE tallyweir.pipeline SET last_sequence = 90")
    connection.execute(
        "UPDATE tallyweir.pipeline SET watermark = watermark + interval '1 day'"
    )
    connection.commit()
    assert merge_catalogs(home_dsn).merged
    chunked = "SELECT count(*) FROM tallyweir.seen_id_run WHERE chunk >= 0"
    assert connection.execute(chunked).fetchone() != (0,)
    connection.commit()
    restored = restore(connection, PIPELINE, "first", _broker(), reason="a test")
    assert restored.ids == 6
    assert _everything(connection) == before
    assert failed(verify(connection, PIPELINE)) == {}


def _in_one_bucket(connection: Connection) -> None:
    """Have all events of one hour, and their IDs filed so."""
    connection.execute("UPDATE tallyweir.seen_id_run SET bucket = 1772326800")
    connection.execute("UPDATE departures SET scheduled_at = '2026-03-01 01:30Z'")
    connection.commit()


def test_moves_of_positions_go_back_too(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Those before the snapshot stay, and what was read again before and after it."""

    def move(target: int) -> None:
        reset_offsets(
            connection,
            PIPELINE,
            {TopicPartition(TOPIC, 0): target},
            _broker(),
            reason="a test",
        )
        scenario.next_offsets[0] = target
        scenario.epoch += 1
        scenario.claim()

    move(4)
    scenario.publish({0: "RR"})
    before = _take(scenario, "amid")
    scenario.publish({0: "C-RRRC"})
    move(30)
    accept_gaps(connection, PIPELINE, _broker(log_start=35) | _at(3), reason="gone")
    scenario.next_offsets[0] = 35
    scenario.publish({0: "CC"})
    assert failed(verify(connection, PIPELINE)) == {}
    _restore(scenario, "amid")
    assert _everything(connection) == before
    assert failed(verify(connection, PIPELINE)) == {}
    scenario.publish({0: "C-RRRX"})
    assert failed(verify(connection, PIPELINE)) == {}


def _at(partition: int) -> dict[TopicPartition, BrokerPosition]:
    return {TopicPartition(TOPIC, partition): _broker()[TopicPartition(TOPIC, 0)]}


def test_ids_that_a_snapshot_needs_are_not_dropped(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """After a restore, their events are not expired; without it they are dropped."""
    _take(scenario, "first")
    ids_since = "SELECT ids_since FROM tallyweir.snapshot"
    ((since,),) = connection.execute(ids_since).fetchall()
    first = since // 3600 * 3600
    number = "SELECT pipeline_number FROM tallyweir.pipeline"
    connection.execute("DROP TABLE tallyweir.seen_id_run_test")
    connection.execute("SELECT tallyweir.create_pipeline_runs('departures')")
    connection.commit()
    for bucket, is_kept in ((first - 3600, False), (first, True)):
        connection.execute(f"SELECT tallyweir.create_bucket(({number}), {bucket})")
        connection.execute(f"SELECT tallyweir.drop_bucket(({number}), {bucket})")
        table = connection.execute(
            f"SELECT to_regclass('tallyweir.' || tallyweir.name_bucket(({number}), "
            f"{bucket}))"
        ).fetchone()
        assert (table != (None,)) == is_kept
    connection.commit()
    drop_snapshot(connection, PIPELINE, "first")
    connection.execute(f"SELECT tallyweir.drop_bucket(({number}), {first})")
    assert connection.execute(
        "SELECT to_regclass('tallyweir.' || "
        f"tallyweir.name_bucket(({number}), {first}))"
    ).fetchone() == (None,)


def test_what_cannot_be_taken_back_whole_is_refused(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Nothing has changed then."""
    _take(scenario, "first")
    scenario.publish({0: "CC"})
    now = _everything(connection)
    for broker in (_broker(log_start=13), _broker(topic_id="another")):
        _expect("RESTORE_NOT_IN_KAFKA", connection, broker)
    _expect("SNAPSHOT_UNKNOWN", connection, name="second")
    for change, code in (
        (
            "INSERT INTO tallyweir.batch_run VALUES ('departures', 'r', 4, 'truncate')",
            "RESTORE_PAST_RUN",
        ),
        (
            "UPDATE tallyweir.pipeline SET definition = definition || '{\"new\": 1}'",
            "DEFINITION_SINCE",
        ),
        (_BRANCH, "NOT_AT_HOME"),
        (_ERASURE, "RESTORE_PAST_ACT"),
    ):
        connection.execute(change.encode())
        connection.commit()
        _expect(code, connection)
        connection.execute("DELETE FROM tallyweir.batch_run")
        connection.execute(
            "UPDATE tallyweir.pipeline SET definition = definition - 'new'"
        )
        connection.execute("DELETE FROM tallyweir.batch_branch")
        connection.execute("DELETE FROM tallyweir.act")
        connection.commit()
    assert _everything(connection) == now


def test_a_snapshot_is_named_once_and_well(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """And not of what a restore could not take back."""
    _take(scenario, "first")
    for name, code in (("first", "SNAPSHOT_EXISTS"), ("First!", "SNAPSHOT_NAME")):
        with pytest.raises(ConfigurationError) as raised:
            take_snapshot(connection, PIPELINE, name, reason="a test")
        assert raised.value.code == code
    away = '{"outputs": [{"kind": "append", "table": "t", "databases": ["billing"]}]}'
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = definition || %s::jsonb", [away]
    )
    connection.commit()
    with pytest.raises(ConfigurationError, match="NOT_AT_HOME"):
        take_snapshot(connection, PIPELINE, "second", reason="a test")


def _expect(
    code: str,
    connection: Connection,
    broker: Mapping[TopicPartition, BrokerPosition] | None = None,
    *,
    name: str = "first",
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        restore(connection, PIPELINE, name, broker or _broker(), reason="a test")
    assert raised.value.code == code


def test_a_restore_that_dies_anywhere_has_changed_nothing(
    connection: Connection, home_dsn: str, scenario: LedgerScenario
) -> None:
    """Whichever statement is the last; the pipeline's driver is not even fenced."""
    before = _take(scenario, "first")
    scenario.publish({0: "CXDL", 3: "FECC"})
    scenario.publish({0: "CC"})
    now = _everything(connection)
    for statements in count():
        dying = dying_after(home_dsn, statements)
        try:
            restore(dying, PIPELINE, "first", _broker(), reason="a test")
        except (RetryableError, psycopg.OperationalError):
            assert _everything(connection) == now
        else:
            break
        finally:
            dying.close()
    assert statements > 30
    assert _everything(connection) == before
    assert failed(verify(connection, PIPELINE)) == {}


def test_a_reset_that_dies_anywhere_has_changed_nothing(
    connection: Connection, home_dsn: str, scenario: LedgerScenario
) -> None:
    """Positions and the note of the move are one commit."""
    now = _everything(connection)
    targets = {TopicPartition(TOPIC, 0): 2, TopicPartition(TOPIC, 3): 200}
    for statements in count():
        dying = dying_after(home_dsn, statements)
        try:
            reset_offsets(dying, PIPELINE, targets, _broker(), reason="a test")
        except (RetryableError, psycopg.OperationalError):
            assert _everything(connection) == now
        else:
            break
        finally:
            dying.close()
    assert statements > 10
    assert _everything(connection)["offset_reset"]
    assert failed(verify(connection, PIPELINE)) == {}
    assert scenario.sequence == 3
