"""The audits against a real server: a correct ledger passes, each forgery is named."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.ledger_scenario import (
    PIPELINE,
    TOPIC,
    LedgerScenario,
    fake_fingerprint,
)
from sinks.postgres.audit import (
    Check,
    PipelineState,
    Receipt,
    Verdict,
    accept_gaps,
    check_recount,
    explain,
    find_gaps,
    narrate,
    narrate_unknown,
    read_recount_spans,
    read_status,
    verify,
)
from sinks.postgres.audit.audited_pipeline import snapshot
from sinks.postgres.audit.explanation import Fate
from sinks.protocol.errors import ConfigurationError, RetryableError, TallyweirError
from sinks.protocol.offsets import TopicPartition
from sinks.protocol.recovery import BrokerPosition

Connection = psycopg.Connection[TupleRow]

_DROP_CONSERVATION = (
    "ALTER TABLE tallyweir.batch_partition DROP CONSTRAINT conservation"
)
_DROP_DEAD_LETTER_KEY = (
    "ALTER TABLE tallyweir.dead_letter DROP CONSTRAINT dead_letter_pkey"
)


@pytest.fixture
def connection(home_dsn: str) -> Iterator[Connection]:
    """A connection to a database with the product's schema."""
    with psycopg.connect(home_dsn) as opened:
        yield opened


@pytest.fixture
def scenario(connection: Connection) -> LedgerScenario:
    """Three batches by two drivers, with every fate and a transaction marker."""
    built = LedgerScenario(connection=connection).register(p0=0, p3=100)
    built.publish({0: "CCCD", 3: "CXCEC"})
    built.publish({0: "CLF-C", 3: "DCCCC"})
    built.claim()
    built.publish({0: "CCX", 3: ""})
    return built


def _failed(receipt: Receipt) -> dict[str, tuple[str, ...]]:
    return {check.name: check.violations for check in receipt.failed}


def _check(receipt: Receipt, name: str) -> Check:
    (found,) = (check for check in receipt.checks if check.name == name)
    return found


def test_a_correct_ledger_is_verified(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Every check holds, looked at something, and the totals add up."""
    assert scenario.sequence == 3
    receipt = verify(connection, PIPELINE)

    assert _failed(receipt) == {}
    assert receipt.is_verified
    assert all(check.verdict is Verdict.OK for check in receipt.checks)
    assert all(check.checked > 0 for check in receipt.checks)
    totals = receipt.totals
    assert (totals.read, totals.committed, totals.duplicate) == (21, 15, 2)
    assert (totals.dead, totals.expired, totals.filtered) == (2, 1, 1)
    assert totals.dead_by_reason == {"UNDECODABLE": 2}
    assert (totals.batches, totals.drivers) == (3, 2)


def test_a_pipeline_without_batches_is_not_verified(connection: Connection) -> None:
    """A check over nothing proves nothing."""
    LedgerScenario(connection=connection).register()

    receipt = verify(connection, PIPELINE)

    assert not receipt.is_verified
    assert receipt.summary == "nothing committed yet"
    assert receipt.failed == ()


def test_an_unknown_pipeline_names_the_known_ones(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """A typo is answered with what could have been meant."""
    assert scenario.sequence == 3
    with pytest.raises(ConfigurationError, match=r"PIPELINE_UNKNOWN.*it knows depart"):
        verify(connection, "departure")


def test_a_database_without_a_ledger_says_so(connection: Connection) -> None:
    """A wrong DSN is told from a pipeline that never started."""
    connection.execute("DROP SCHEMA tallyweir CASCADE")
    connection.commit()
    with pytest.raises(ConfigurationError, match="LEDGER_MISSING"):
        verify(connection, PIPELINE)


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
        ["UPDATE tallyweir.seen_id_run SET first = '\\x00' WHERE sequence = 3"],
        "seen_ids",
        "is not sorted",
    ),
    "ID remembered by two batches": (
        [
            (
                "INSERT INTO tallyweir.seen_id_run SELECT pipeline, bucket, shard, 1, "
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
        "batch 3 has epoch 2, which nobody claimed",
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
    violations = _failed(receipt).get(check, ())
    assert any(said in violation for violation in violations), _failed(receipt)


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
    assert _check(verify(connection, PIPELINE), "conservation").violations == (
        "batch 3 on orders[0]: 3 read, 2 accounted for",
    )


def test_an_accepted_gap_continues_the_ranges(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """What a person gave up with a reason is a gap no more, and reading goes on."""
    broker = _broker({0: 20, 3: 105})

    (gap,) = accept_gaps(connection, PIPELINE, broker, reason=" disk was full ")
    assert _failed(verify(connection, PIPELINE)) == {}
    scenario.next_offsets[0] = 20
    scenario.publish({0: "CC"})

    assert (gap.lost.from_offset, gap.lost.until_offset) == (12, 20)
    assert connection.execute(
        "SELECT partition, from_offset, until_offset, after_sequence, reason "
        "FROM tallyweir.accepted_gap"
    ).fetchall() == [(0, 12, 20, 3, "disk was full")]
    connection.commit()
    receipt = verify(connection, PIPELINE)
    assert _failed(receipt) == {}
    note = _check(receipt, "offset_ranges").note
    assert note == "8 offsets were given up by accept-gap"


def test_a_gap_of_a_partition_that_is_new_is_accepted_too(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """A partition that was added is read from 0, so its start may be gone as well."""
    broker = _broker({0: 0, 3: 0, 7: 40})

    accept_gaps(connection, PIPELINE, broker, reason="added late")
    scenario.next_offsets[7] = 40
    scenario.publish({7: "C"})

    assert _failed(verify(connection, PIPELINE)) == {}


def test_a_gap_that_nobody_accepted_stays_a_gap(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Reading on past lost offsets without a reason is reported."""
    scenario.next_offsets[0] = 20
    scenario.publish({0: "CC"})

    assert _check(verify(connection, PIPELINE), "offset_ranges").violations == (
        "offset gap 12..20 on orders[0] after batch 3",
    )


def test_without_a_gap_nothing_is_accepted(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Offsets that can still be read are never skipped."""
    assert scenario.sequence == 3
    with pytest.raises(ConfigurationError, match="NO_GAP"):
        accept_gaps(connection, PIPELINE, _broker({0: 12, 3: 0}), reason="hurry")

    assert _failed(verify(connection, PIPELINE)) == {}


def test_a_gap_needs_a_reason(connection: Connection, scenario: LedgerScenario) -> None:
    """A blank is no reason, and nothing changes without one."""
    assert scenario.sequence == 3
    with pytest.raises(ConfigurationError, match="GAP_REASON_MISSING"):
        accept_gaps(connection, PIPELINE, _broker({0: 20}), reason=" \t")

    assert _failed(verify(connection, PIPELINE)) == {}


def test_looking_for_gaps_changes_nothing(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """A dry run tells the same gaps and leaves the pipeline where it was."""
    assert scenario.sequence == 3
    (gap,) = find_gaps(connection, PIPELINE, _broker({0: 20}))

    assert str(gap.lost) == "orders[0] 12..20"
    assert verify(connection, PIPELINE).is_verified


def test_a_recreated_topic_is_no_gap(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """The offsets of another topic of the same name say nothing about the loss."""
    assert scenario.sequence == 3
    with pytest.raises(ConfigurationError, match="TOPIC_RECREATED"):
        accept_gaps(
            connection, PIPELINE, _broker({0: 20}, topic_id="other"), reason="x"
        )


def test_a_publish_meanwhile_makes_the_gap_wait_and_give_up(
    connection: Connection, scenario: LedgerScenario, home_dsn: str
) -> None:
    """The pipeline's row orders both; a wait without end would block an operator."""
    assert scenario.sequence == 3
    with psycopg.connect(home_dsn) as publisher:
        # The weakest lock that an update takes: the gap's foreign key alone would not
        # wait for it.
        publisher.execute("SELECT FROM tallyweir.pipeline FOR NO KEY UPDATE")
        with pytest.raises(RetryableError, match="lock timeout"):
            accept_gaps(
                connection,
                PIPELINE,
                _broker({0: 20}),
                reason="x",
                lock_timeout_ms=100,
            )

    assert verify(connection, PIPELINE).is_verified


def test_without_deduplication_the_catalog_is_not_applicable(
    connection: Connection,
) -> None:
    """What a pipeline does not have is neither ok nor failed."""
    scenario = LedgerScenario(connection=connection, deduplicate=False).register()
    scenario.publish({0: "CC"})

    receipt = verify(connection, PIPELINE)

    assert _check(receipt, "seen_ids").verdict is Verdict.NOT_APPLICABLE
    assert receipt.is_verified


def test_dropped_late_events_owe_no_rows(connection: Connection) -> None:
    """An output that drops late events only counts them."""
    scenario = LedgerScenario(connection=connection, late="drop").register()
    scenario.publish({0: "CLL"})

    assert _failed(verify(connection, PIPELINE)) == {}


def test_forgotten_buckets_are_reported_as_not_checkable(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """IDs beyond the horizon are gone on purpose; the receipt says how many batches."""
    connection.execute(
        "UPDATE tallyweir.pipeline SET watermark = watermark + interval '7 days'"
    )
    connection.execute("DELETE FROM tallyweir.seen_id_run WHERE sequence < 3")
    connection.commit()

    check = _check(verify(connection, PIPELINE), "seen_ids")

    assert scenario.sequence == 3
    assert check.verdict is Verdict.OK
    assert check.note.startswith("2 of 3 batches reach beyond the horizon")


def test_an_output_that_was_added_owes_nothing_for_older_batches(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Batches from before an output existed are not held against it."""
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = jsonb_set(definition, "
        """'{outputs,2}', '{"kind": "append", "table": "copies"}')"""
    )
    connection.execute("CREATE TABLE copies (LIKE departures)")
    connection.commit()

    assert scenario.sequence == 3
    assert _failed(verify(connection, PIPELINE)) == {}


def test_every_copy_of_an_id_is_told_in_order(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """The committed copy comes first, its repeat after it, each with its batch."""
    assert scenario.sequence == 3
    explanation = explain(connection, PIPELINE, "0-2", fake_fingerprint)

    assert [(s.fate, s.offset) for s in explanation.sightings] == [
        (Fate.COMMITTED, 2),
        (Fate.DUPLICATE, 3),
    ]
    assert len(explanation.catalog_hits) == 1
    told = list(narrate(explanation, lambda _payload: None))
    assert told[:2] == [
        (
            "A copy at orders[0] offset 2 was committed to departures in batch 1, "
            "published at 2026-03-02 00:00:01 UTC by the driver of epoch 1."
        ),
        (
            "Copy 2 at orders[0] offset 3 was dropped as a duplicate in batch 1, "
            "published at 2026-03-02 00:00:01 UTC by the driver of epoch 1."
        ),
    ]
    assert "remembered as seen" in told[2]


@pytest.mark.parametrize(
    ("event_id", "fates", "said"),
    [
        ("3-101", [Fate.DEAD], "UNDECODABLE, no magic byte"),
        ("3-103", [Fate.EXPIRED], "beyond the horizon"),
        ("0-5", [Fate.COMMITTED, Fate.LATE], "too late for departures_by_hour"),
    ],
)
def test_each_fate_is_explained(
    connection: Connection,
    scenario: LedgerScenario,
    event_id: str,
    fates: list[Fate],
    said: str,
) -> None:
    """Whatever became of an event is found by its ID, and said."""
    assert scenario.sequence == 3
    explanation = explain(connection, PIPELINE, event_id, fake_fingerprint)

    assert [sighting.fate for sighting in explanation.sightings] == fates
    assert said in "\n".join(narrate(explanation, lambda payload: payload.hex()))


def test_an_id_that_is_a_number_is_found_by_its_text(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """A person types text, whatever type the column has."""
    connection.execute(
        "ALTER TABLE departures ALTER COLUMN event_id TYPE bigint "
        "USING replace(event_id, '-', '')::bigint"
    )
    connection.commit()

    assert scenario.sequence == 3
    explanation = explain(connection, PIPELINE, "02", fake_fingerprint)
    assert explanation.sightings == ()
    explanation = explain(connection, PIPELINE, "3102", fake_fingerprint)
    assert [s.offset for s in explanation.sightings] == [102]


def test_an_unknown_id_says_what_cannot_be_known(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """An empty answer names what was searched, and where the event may still be."""
    connection.execute("UPDATE tallyweir.dead_letter SET event_id = NULL")
    connection.commit()

    explanation = explain(connection, PIPELINE, "never", fake_fingerprint)
    told = "\n".join(narrate_unknown(explanation, {TopicPartition(TOPIC, 0): 8}))

    assert scenario.sequence == 3
    assert not explanation.is_known
    assert "the rows of departures" in told
    assert "the seen-ID catalog" in told
    assert "2 dead letters have no readable ID" in told
    assert "before 2026-02-22 03:00:00 UTC may have been forgotten" in told
    assert "8 on orders[0]" in told


def test_status_tells_where_the_pipeline_stands(
    connection: Connection, scenario: LedgerScenario, home_dsn: str
) -> None:
    """A driver counts as alive while it has a session under its epoch's name."""
    assert scenario.sequence == 3
    found = read_status(connection, PIPELINE)

    assert {str(p.position): p.stored.next_offset for p in found.partitions} == {
        "orders[0]": 12,
        "orders[3]": 110,
    }
    assert found.last_batch is not None
    assert (found.last_batch.sequence, found.last_batch.read) == (3, 3)
    # Planned and published in the same moments, a second apart: 21 events in 2 s.
    assert (found.minute_rate, found.batches_rate) == (0.0, 10.5)
    assert found.catalog_ids == 15
    assert found.state(5) is PipelineState.STOPPED
    number = connection.execute(
        "SELECT pipeline_number FROM tallyweir.pipeline"
    ).fetchone()
    connection.commit()
    assert number is not None
    with psycopg.connect(home_dsn, application_name=f"tallyweir p{number[0]} e2"):
        found = read_status(connection, PIPELINE)
    assert found.state(0) is PipelineState.CAUGHT_UP
    assert found.state(5) is PipelineState.STALLED


def test_a_recount_names_lost_ranges_and_differences(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Only batches that Kafka holds as a whole are counted again."""
    assert scenario.sequence == 3
    spans = read_recount_spans(
        connection, PIPELINE, {TopicPartition(TOPIC, 0): 2, TopicPartition(TOPIC, 3): 0}
    )

    assert [(str(span.offsets), span.read, str(span.lost)) for span in spans] == [
        ("orders[0] 4..12", 7, "orders[0] 0..4"),
        ("orders[3] 100..110", 10, "None"),
    ]
    check = check_recount(spans, (7, 9))
    assert check.violations == (
        "orders[3] 100..110: Kafka holds 9 records, the ledger says 10 were read",
    )
    assert check.note == "not checkable, deleted by retention since: orders[0] 0..4"


def test_an_audit_reads_one_snapshot(
    connection: Connection, scenario: LedgerScenario, home_dsn: str
) -> None:
    """A batch that commits in the middle of an audit is seen whole or not at all."""
    assert scenario.sequence == 3
    count = "SELECT count(*) FROM departures"
    with snapshot(connection, doing="testing"):
        before = connection.execute(count).fetchone()
        with psycopg.connect(home_dsn) as other:
            other.execute("DELETE FROM departures")
        assert connection.execute(count).fetchone() == before == (15,)


def test_an_audit_cannot_write(
    connection: Connection, scenario: LedgerScenario
) -> None:
    """Whoever looks must not change what he looks at."""
    assert scenario.sequence == 3
    with (
        pytest.raises(TallyweirError, match="read-only"),
        snapshot(connection, doing="testing"),
    ):
        connection.execute("DELETE FROM departures")

    assert verify(connection, PIPELINE).is_verified


def _broker(
    starts: dict[int, int], topic_id: str = "id"
) -> dict[TopicPartition, BrokerPosition]:
    return {
        TopicPartition(TOPIC, partition): BrokerPosition(
            topic_id=topic_id, log_start_offset=start, log_end_offset=1000
        )
        for partition, start in starts.items()
    }
