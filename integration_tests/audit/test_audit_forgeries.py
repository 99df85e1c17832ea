"""Whatever is forged in the home database, verify names it."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.ledger_scenario import (
    PIPELINE,
    LedgerScenario,
    check_of,
    failed,
)
from tallyweir.sinks.postgres.audit import verify

Connection = psycopg.Connection[TupleRow]

_DROP_CONSERVATION = (
    "ALTER TABLE tallyweir.batch_partition DROP CONSTRAINT conservation"
)
_DROP_DEAD_LETTER_KEY = (
    "ALTER TABLE tallyweir.dead_letter DROP CONSTRAINT dead_letter_pkey"
)


# Each forgery, the check that must name it, and what it must say.
_FORGERIES = {
    "row removed": (
        ["DELETE FROM departures WHERE kafka_partition = 3 AND kafka_offset = 102"],
        "append_outputs",
        "departures: 2 rows of batch 1 on orders[3], the ledger counts 3",
    ),
    "row doubled": (
        ["INSERT INTO departures SELECT * FROM departures WHERE event_id = '0-1'"],
        "append_outputs",
        "departures: orders[0] offset 1 is there 2 times",
    ),
    "row doubled in place of its neighbours": (
        [
            (
                "UPDATE departures SET kafka_offset = 107 "
                "WHERE kafka_partition = 3 AND kafka_offset IN (106, 108)"
            )
        ],
        "append_outputs",
        "departures: orders[3] offset 107 is there 3 times",
    ),
    "row moved to another batch": (
        [
            (
                "UPDATE departures SET kafka_offset = 3 "
                "WHERE kafka_partition = 0 AND kafka_offset = 4"
            )
        ],
        "append_outputs",
        "departures: 4 rows of batch 1 on orders[0], the ledger counts 3",
    ),
    "row moved within its batch": (
        [
            (
                "UPDATE departures SET kafka_offset = 7 "
                "WHERE kafka_partition = 0 AND kafka_offset = 8"
            )
        ],
        "append_outputs",
        "departures: the offsets of batch 2 add up to 446, its checksum is 447",
    ),
    "row at the next offset": (
        ["INSERT INTO departures VALUES ('new', now(), 'orders', 0, 12)"],
        "append_outputs",
        (
            "departures: 1 rows of orders[0] lie in no batch, offsets 12 to 12, though "
            "the next offset to read is 12"
        ),
    ),
    "row before the first offset": (
        ["INSERT INTO departures VALUES ('new', now(), 'orders', 3, 99)"],
        "append_outputs",
        "departures: 1 rows of orders[3] lie in no batch, offsets 99 to 99",
    ),
    "row of a partition that was never read": (
        ["INSERT INTO departures VALUES ('new', now(), 'orders', 9, 0)"],
        "append_outputs",
        (
            "departures: 1 rows of orders[9] lie in no batch, offsets 0 to 0, though "
            "the next offset to read is 0"
        ),
    ),
    "dead letter that is a result too": (
        [
            (
                "UPDATE departures SET kafka_offset = 101 "
                "WHERE kafka_partition = 3 AND kafka_offset = 100"
            )
        ],
        "append_outputs",
        "departures: orders[3] offset 101 is there, and is a dead letter as well",
    ),
    "table dropped": (
        ["DROP TABLE departures"],
        "append_outputs",
        (
            "departures: the table has no column "
            "kafka_topic, kafka_partition, kafka_offset"
        ),
    ),
    "output's count forged": (
        ["UPDATE tallyweir.batch_output SET events = 8 WHERE sequence = 2"],
        "append_outputs",
        "departures: batch 2 says 8 events in 7 rows, the table holds 7",
    ),
    "position advanced": (
        [
            (
                "UPDATE tallyweir.partition_progress SET next_offset = 14 "
                "WHERE partition = 0"
            )
        ],
        "offset_ranges",
        "orders[0] stands at 14, the ledger ends at 12 with batch 3",
    ),
    "position lost": (
        ["DELETE FROM tallyweir.partition_progress WHERE partition = 3"],
        "offset_ranges",
        "orders[3] stands at no offset, the ledger ends at 110 with batch 3",
    ),
    "offsets skipped": (
        [
            (
                "UPDATE tallyweir.batch_partition SET from_offset = 106, read = 4, "
                "duplicate = 0 WHERE sequence = 2 AND partition = 3"
            )
        ],
        "offset_ranges",
        "offset gap 105..106 on orders[3] after batch 1",
    ),
    "offsets read twice": (
        [
            (
                "UPDATE tallyweir.batch_partition SET from_offset = 3 "
                "WHERE sequence = 2 AND partition = 0"
            )
        ],
        "offset_ranges",
        "offset overlap 3..4 on orders[0] in batch 2",
    ),
    "counts out of balance": (
        [
            _DROP_CONSERVATION,
            "UPDATE tallyweir.batch_partition SET filtered = 0 WHERE sequence = 2",
        ],
        "conservation",
        "batch 2 on orders[0]: 4 read, 3 accounted for",
    ),
    "committed instead of filtered": (
        [
            (
                "UPDATE tallyweir.batch_partition SET filtered = 0, "
                "committed = committed + filtered WHERE sequence = 2"
            )
        ],
        "append_outputs",
        "departures: 3 rows of batch 2 on orders[0], the ledger counts 4",
    ),
    "batch removed": (
        [
            "DELETE FROM tallyweir.dead_letter WHERE sequence = 3",
            "DELETE FROM tallyweir.batch_output WHERE sequence = 3",
            "DELETE FROM tallyweir.batch_partition WHERE sequence = 3",
            "DELETE FROM tallyweir.batch WHERE sequence = 3",
        ],
        "sequences",
        "batches 3 to 3 are missing",
    ),
    "last sequence set back": (
        ["UPDATE tallyweir.pipeline SET last_sequence = 2"],
        "sequences",
        "batch 3 is beyond the pipeline's last sequence 2",
    ),
    "dead letter removed": (
        ["DELETE FROM tallyweir.dead_letter WHERE sequence = 1"],
        "side_tables",
        "dead_letter: 0 rows of batch 1 on orders[3], the ledger counts 1",
    ),
    "dead letter doubled": (
        [
            _DROP_DEAD_LETTER_KEY,
            "INSERT INTO tallyweir.dead_letter SELECT * FROM tallyweir.dead_letter",
        ],
        "side_tables",
        "dead_letter: 2 rows of batch 1 on orders[3], the ledger counts 1",
    ),
    "dead letter moved to another batch": (
        ["UPDATE tallyweir.dead_letter SET sequence = 2 WHERE sequence = 1"],
        "side_tables",
        "dead_letter: 1 rows of batch 2 on orders[3], the ledger counts 0",
    ),
    "dead letter moved to another offset": (
        ["UPDATE tallyweir.dead_letter SET kafka_offset = 12 WHERE sequence = 3"],
        "side_tables",
        "dead_letter: rows of batch 3 on orders[0] lie outside of the batch's offsets",
    ),
    "dead letter of no batch": (
        ["UPDATE tallyweir.dead_letter SET sequence = 4 WHERE sequence = 3"],
        "side_tables",
        "dead_letter: 1 rows of batch 4 on orders[0], the ledger counts 0",
    ),
    "duplicate of no batch": (
        ["UPDATE tallyweir.duplicate_event SET sequence = 4 WHERE sequence = 2"],
        "side_tables",
        "duplicate_event: 1 rows of batch 4 on orders[3], the ledger counts 0",
    ),
    "late event of no batch": (
        ["UPDATE tallyweir.late_event SET sequence = 4"],
        "side_tables",
        "late_event: 1 rows of batch 4 for departures_by_hour, the ledger counts 0",
    ),
    "expired event removed": (
        ["DELETE FROM tallyweir.expired_event"],
        "side_tables",
        "expired_event: 0 rows of batch 1 on orders[3], the ledger counts 1",
    ),
    "duplicate removed": (
        ["DELETE FROM tallyweir.duplicate_event WHERE sequence = 2"],
        "side_tables",
        "duplicate_event: 0 rows of batch 2 on orders[3], the ledger counts 1",
    ),
    "late event removed": (
        ["DELETE FROM tallyweir.late_event"],
        "side_tables",
        "late_event: 0 rows of batch 2 for departures_by_hour, the ledger counts 1",
    ),
    "run dropped": (
        ["DELETE FROM tallyweir.seen_id_run WHERE sequence = 3"],
        "seen_ids",
        "bucket 1772334000 holds 0 IDs of batch 3, departures has 2 of its events",
    ),
    "run shortened": (
        [
            (
                "UPDATE tallyweir.seen_id_run SET ids = ids - 1, "
                "last = substr(fingerprints, 16 * ids - 31, 16), "
                "fingerprints = substr(fingerprints, 1, 16 * ids - 16) "
                "WHERE ids > 1 AND sequence = 2"
            )
        ],
        "seen_ids",
        "IDs of batch 2, departures has 7 of its events",
    ),
    "run unsorted": (
        [
            (
                "UPDATE tallyweir.seen_id_run SET fingerprints = "
                "substr(fingerprints, 1, 16) || substr(fingerprints, 33, 16) || "
                "substr(fingerprints, 17, 16) || substr(fingerprints, 49) "
                "WHERE ids > 3 AND sequence = 2"
            )
        ],
        "seen_ids",
        "is not sorted",
    ),
    "run's first ID forged": (
        [
            (
                "UPDATE tallyweir.seen_id_run SET first = substr(first, 1, 15) "
                "WHERE sequence = 3"
            )
        ],
        "seen_ids",
        "is not sorted",
    ),
    "ID remembered by two batches": (
        [
            (
                "INSERT INTO tallyweir.seen_id_run SELECT pipeline, bucket, 1, "
                "ids, first, last, fingerprints FROM tallyweir.seen_id_run "
                "WHERE sequence = 3"
            )
        ],
        "seen_ids",
        "IDs are twice in bucket",
    ),
    "older driver published after a newer one": (
        ["UPDATE tallyweir.batch SET epoch = 2, spark_batch_id = 9 WHERE sequence = 1"],
        "epochs",
        "batch 2 of epoch 1 follows epoch 2",
    ),
    "claim removed": (
        [
            "ALTER TABLE tallyweir.batch DROP CONSTRAINT batch_pipeline_epoch_fkey",
            "DELETE FROM tallyweir.epoch_claim WHERE epoch = 2",
        ],
        "epochs",
        "batch 3 has epoch 2, never claimed",
    ),
    "watermark set back between batches": (
        [
            (
                "UPDATE tallyweir.batch SET watermark_before = "
                "watermark_before - interval '1 hour' WHERE sequence = 3"
            )
        ],
        "watermark",
        (
            "the watermark went back from 2026-03-01 02:00:00+00:00 to "
            "2026-03-01 01:00:00+00:00 before batch 3"
        ),
    ),
    "pipeline's watermark lost": (
        ["UPDATE tallyweir.pipeline SET watermark = NULL"],
        "watermark",
        "to unknown since batch 3",
    ),
}


@pytest.mark.parametrize("forgery", _FORGERIES)
def test_a_forgery_is_named_by_its_check(
    connection: Connection, scenario: LedgerScenario, forgery: str
) -> None:
    """Whatever is changed behind the ledger's back fails the check that guards it."""
    assert scenario.sequence == 3
    statements, check, said = _FORGERIES[forgery]
    connection.execute("SET timezone = 'UTC'")
    for statement in statements:
        connection.execute(statement)
    connection.commit()

    receipt = verify(connection, PIPELINE)

    assert not receipt.is_verified
    violations = failed(receipt).get(check, ())
    assert any(said in violation for violation in violations), failed(receipt)


def test_the_conservation_view_says_what_the_check_says(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Whoever has psql only sees the same law as verify."""
    assert scenario.sequence == 3
    connection.execute(_DROP_CONSERVATION)
    connection.execute(
        "UPDATE tallyweir.batch_partition SET read = 3 WHERE sequence = 3 "
        "AND partition = 0 AND until_offset = 12"
    )
    connection.execute(
        "UPDATE tallyweir.batch_partition SET dead = 0 WHERE sequence = 3"
    )
    unaccounted = connection.execute(
        "SELECT sequence, topic, partition, read, accounted, unaccounted "
        "FROM tallyweir.conservation WHERE unaccounted <> 0"
    ).fetchall()
    connection.commit()

    assert unaccounted == [(3, "orders", 0, 3, 2, 1)]
    assert check_of(verify(connection, PIPELINE), "conservation").violations == (
        "batch 3 on orders[0]: 3 read, 2 accounted for",
    )
