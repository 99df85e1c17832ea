"""Builds a correct ledger in SQL, batch by batch, without Kafka and Spark.

What became of the records of a batch is written as one letter per offset::

    C  committed      D  a duplicate      X  a dead letter
    L  committed, but too late for the window output
    E  expired        F  filtered         -  no record (a transaction marker)
    R  a duplicate of itself: read again after it was committed
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit import Check, Receipt

PIPELINE = "departures"
TOPIC = "orders"
BUCKET_SECONDS = 3600
HORIZON = timedelta(days=7)
FIRST_EVENT = datetime(2026, 3, 1, tzinfo=UTC)
PLANNED = datetime(2026, 3, 2, tzinfo=UTC)
WINDOWS = "departures_by_hour"


def definition(
    *, late: str = "side_table", deduplicate: bool = True, windows: str = WINDOWS
) -> dict[str, Any]:
    """Return a pipeline's definition as its driver registers it."""
    return {
        "format": 1,
        "name": PIPELINE,
        "source": {
            "topic": TOPIC,
            "schema": "flight_departure.v1",
            "event_id": {"field": "event_id"},
            "event_time": "scheduled_at",
        },
        "deduplicate": {"horizon": "7 days"} if deduplicate else None,
        "outputs": [
            {"kind": "append", "table": "departures", "columns": None},
            {"kind": "window", "table": windows, "late": late},
        ],
    }


def fake_fingerprint(key: bytes, event_id: str) -> tuple[bytes]:
    """Stand in for the product's fingerprint; any 16 bytes per ID will do here."""
    return (hashlib.blake2b(event_id.encode(), key=key, digest_size=16).digest(),)


def failed(receipt: Receipt) -> dict[str, tuple[str, ...]]:
    """Return what a receipt found wrong, by check."""
    return {check.name: check.violations for check in receipt.failed}


def check_of(receipt: Receipt, name: str) -> Check:
    """Return one check of a receipt."""
    (found,) = (check for check in receipt.checks if check.name == name)
    return found


@dataclass(kw_only=True)
class LedgerScenario:
    """A pipeline whose batches are written as its driver would."""

    connection: psycopg.Connection[TupleRow]
    late: str = "side_table"
    deduplicate: bool = True
    windows_table: str = WINDOWS
    sequence: int = 0
    epoch: int = 0
    next_offsets: dict[int, int] = field(default_factory=dict)
    last_id: str = "none"
    #: Of another topic the same offsets are of other events.
    id_prefix: str = ""

    def register(self, **first_offsets: int) -> LedgerScenario:
        """Create the result table and the pipeline, and claim its first epoch."""
        self.connection.execute(
            "CREATE TABLE departures (event_id text, scheduled_at timestamptz, "
            "kafka_topic text, kafka_partition integer, kafka_offset bigint)"
        )
        self.connection.execute(
            "INSERT INTO tallyweir.pipeline (pipeline, definition, definition_hash, "
            "shards, bucket_seconds) VALUES (%s, %s, 'hash', 2, %s)",
            (
                PIPELINE,
                json.dumps(definition(late=self.late, deduplicate=self.deduplicate)),
                BUCKET_SECONDS,
            ),
        )
        self.connection.execute(
            "CREATE TABLE tallyweir.seen_id_run_test PARTITION OF "
            "tallyweir.seen_id_run FOR VALUES IN ('departures')"
        )
        self.next_offsets = {int(p[1:]): n for p, n in first_offsets.items()}
        self.claim()
        return self

    def change_late(self, late: str) -> None:
        """Register what becomes of late events from now on."""
        self.late = late
        self._register_again()

    def rename_windows(self, table: str) -> None:
        """Give the window output another table from now on."""
        self.windows_table = table
        self._register_again()

    def _register_again(self) -> None:
        changed = definition(
            late=self.late, deduplicate=self.deduplicate, windows=self.windows_table
        )
        self.connection.execute(
            "UPDATE tallyweir.pipeline SET definition = %s", (json.dumps(changed),)
        )
        self.connection.commit()

    def claim(self) -> None:
        """Start another driver."""
        self.epoch += 1
        self.connection.execute(
            "INSERT INTO tallyweir.epoch_claim (pipeline, epoch, host, process_id) "
            "VALUES (%s, %s, 'test', 1)",
            (PIPELINE, self.epoch),
        )
        self.connection.commit()

    def publish(self, fates: Mapping[int, str]) -> None:
        """Publish one batch; its events happened an hour after the former batch's."""
        self.sequence += 1
        event_time = FIRST_EVENT + timedelta(hours=self.sequence)
        starts = {p: self.next_offsets.setdefault(p, 0) for p in fates}
        records = [
            (partition, starts[partition] + index, fate)
            for partition, letters in fates.items()
            for index, fate in enumerate(letters)
        ]
        committed = [(p, o) for p, o, fate in records if fate in "CL"]
        self._write_batch(event_time, sum(offset for _, offset in committed))
        for partition, letters in fates.items():
            self._write_partition(partition, letters, event_time)
        self._write_outputs(len(committed), sum(f == "L" for _, _, f in records))
        for partition, offset, fate in records:
            self._write_record(partition, offset, fate, event_time)
        if self.deduplicate:
            ids = [f"{self.id_prefix}{p}-{o}" for p, o in committed]
            self._write_runs(ids, event_time)
        self.connection.commit()

    def write_measures(self) -> None:
        """Give each batch measures: a second of staging, half of it decoding."""
        measures = {
            "seconds": {"between": 0, "plan": 0, "stage": 1.0, "wait": 0, "publish": 1},
            "steps": {
                "read": {"seconds": 0.2, "seconds_max": 0.2, "rows_out": 7},
                "decode": {"seconds": 0.5, "seconds_max": 0.5, "rows_in": 7},
            },
            "hot_keys": {"departures_by_hour": {"events": 4, "keys": [["#0af1", 3]]}},
            "counts": {"refunds": 2},
            "unnamed": {"coupon": 3},
        }
        self.connection.execute(
            "INSERT INTO tallyweir.batch_measures "
            "SELECT pipeline, sequence, %s FROM tallyweir.batch",
            (json.dumps(measures),),
        )
        self.connection.commit()

    def write_samples(self) -> None:
        """Keep rows of two steps, as a pipeline asks that redacts an e-mail address."""
        self.connection.execute(
            "UPDATE tallyweir.pipeline SET definition = definition || "
            """'{"monitor": {"samples": 2, "redact": ["email"]}}'"""
        )
        row = {"topic": TOPIC, "partition": 0, "offset": 2, "reason": None}
        left = {"topic": None, "partition": None, "offset": None, "reason": None}
        for step, output, redacted, rows in (
            ("decode", "", ["email"], [row | {"fields": [["origin", "<JFK>"]]}]),
            ("stage", "departures_by_hour", [], [left | {"fields": [["n", None]]}]),
        ):
            shown = [one | {"left_out": 0} for one in rows]
            self.connection.execute(
                "INSERT INTO tallyweir.sample VALUES (%s, %s, %s, %s, %s, %s)",
                (
                    *(PIPELINE, step, output, self.sequence),
                    *(json.dumps(redacted), json.dumps(shown)),
                ),
            )
        self.connection.commit()

    def _write_batch(self, event_time: datetime, checksum: int) -> None:
        planned = PLANNED + timedelta(seconds=self.sequence)
        self.connection.execute(
            "INSERT INTO tallyweir.batch (pipeline, sequence, epoch, spark_batch_id, "
            "watermark_before, watermark_after, checksum, planned_at, staged_at, "
            "published_at) SELECT pipeline, %(sequence)s, %(epoch)s, %(sequence)s, "
            "watermark, %(watermark)s, %(checksum)s, %(at)s, %(at)s, %(at)s "
            "FROM tallyweir.pipeline",
            {
                "sequence": self.sequence,
                "epoch": self.epoch,
                "watermark": event_time,
                "checksum": checksum,
                "at": planned,
            },
        )
        self.connection.execute(
            "UPDATE tallyweir.pipeline SET last_sequence = %s, watermark = %s",
            (self.sequence, event_time),
        )

    def _write_partition(
        self, partition: int, letters: str, event_time: datetime
    ) -> None:
        start = self.next_offsets[partition]
        until = start + len(letters)
        counts = [sum(f in kind for f in letters) for kind in ("CL", "DR", *"XEF")]
        self.connection.execute(
            "INSERT INTO tallyweir.batch_partition (pipeline, sequence, topic, "
            "partition, from_offset, until_offset, read, committed, duplicate, dead, "
            "expired, filtered, late) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 0)",
            (
                PIPELINE,
                self.sequence,
                TOPIC,
                partition,
                start,
                until,
                sum(counts),
                *counts,
            ),
        )
        self.connection.execute(
            "INSERT INTO tallyweir.partition_progress (pipeline, topic, partition, "
            "topic_id, next_offset, event_time_max) "
            "VALUES (%s, %s, %s, 'id', %s, %s) "
            "ON CONFLICT (pipeline, topic, partition) DO UPDATE SET "
            "next_offset = EXCLUDED.next_offset, "
            "event_time_max = EXCLUDED.event_time_max",
            (PIPELINE, TOPIC, partition, until, event_time),
        )
        self.next_offsets[partition] = until

    def _write_outputs(self, committed: int, late: int) -> None:
        for table, kind, events, late_events in (
            ("departures", "append", committed, 0),
            (self.windows_table, "window", committed - late, late),
        ):
            self.connection.execute(
                "INSERT INTO tallyweir.batch_output (pipeline, sequence, output_table, "
                "kind, events, rows, late, revised, late_kept) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s, 0, %s)",
                (
                    *(PIPELINE, self.sequence, table, kind, events, events),
                    *(late_events, kind == "window" and self.late != "drop"),
                ),
            )

    def _write_record(
        self, partition: int, offset: int, fate: str, event_time: datetime
    ) -> None:
        position = (TOPIC, partition, offset)
        event_id = f"{self.id_prefix}{partition}-{offset}"
        place = (PIPELINE, *position, self.sequence)
        columns = "(pipeline, kafka_topic, kafka_partition, kafka_offset, sequence, "
        if fate in "CL":
            self.last_id = event_id
            self.connection.execute(
                "INSERT INTO departures VALUES (%s, %s, %s, %s, %s)",
                (event_id, event_time, *position),
            )
        if fate == "L" and self.late != "drop":
            self.connection.execute(
                f"INSERT INTO tallyweir.late_event {columns} output_table, event_id, "
                "event_time, payload) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, '')",
                (*place, self.windows_table, event_id, event_time),
            )
        if fate in "DR":
            self.connection.execute(
                f"INSERT INTO tallyweir.duplicate_event {columns} event_id) "
                "VALUES (%s, %s, %s, %s, %s, %s)",
                (*place, self.last_id if fate == "D" else event_id),
            )
        if fate == "F":
            self.connection.execute(
                f"INSERT INTO tallyweir.filtered_event {columns} event_id, condition) "
                "VALUES (%s, %s, %s, %s, %s, %s, 'flight > 0')",
                (*place, event_id),
            )
        if fate == "X":
            self.connection.execute(
                f"INSERT INTO tallyweir.dead_letter {columns} reason, detail, "
                "event_id, payload) "
                "VALUES (%s, %s, %s, %s, %s, 'UNDECODABLE', 'no magic byte', %s, "
                "'\\xdead')",
                (*place, event_id),
            )
        if fate == "E":
            self.connection.execute(
                f"INSERT INTO tallyweir.expired_event {columns} event_id, "
                "event_time, payload) VALUES (%s, %s, %s, %s, %s, %s, %s, '')",
                (*place, event_id, event_time - HORIZON),
            )

    def _write_runs(self, event_ids: list[str], event_time: datetime) -> None:
        row = self.connection.execute(
            "SELECT fingerprint_key FROM tallyweir.installation"
        ).fetchone()
        assert row is not None
        bucket = int(event_time.timestamp()) // BUCKET_SECONDS * BUCKET_SECONDS
        prints = sorted(fake_fingerprint(row[0], event_id)[0] for event_id in event_ids)
        # Two tasks have staged the batch, and each has added a run of its own.
        for run in (prints[::2], prints[1::2]):
            if run:
                self.connection.execute(
                    "INSERT INTO tallyweir.seen_id_run (pipeline, bucket, sequence, "
                    "ids, first, last, fingerprints) "
                    "VALUES (%s, %s, %s, %s, %s, %s, %s)",
                    (
                        PIPELINE,
                        bucket,
                        self.sequence,
                        len(run),
                        run[0],
                        run[-1],
                        b"".join(run),
                    ),
                )
