"""Databases that hold a small finished run of chaos, filled without a driver."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import Connection

from tallyweir.services.dev.chaos.chaos_world import PIPELINE, TOPIC
from tallyweir.services.dev.chaos.invariants import Sent
from tallyweir.services.dev.chaos.observed_run import ObservedRun
from tallyweir.services.dev.chaos.plan import HOME
from tallyweir.sinks.postgres.schema.migrations import migrate

_EVENTS = """
CREATE TABLE chaos_events (
    event_id text NOT NULL, site text NOT NULL, amount bigint NOT NULL,
    happened_at timestamptz NOT NULL, note text NOT NULL,
    kafka_topic text NOT NULL, kafka_partition integer NOT NULL,
    kafka_offset bigint NOT NULL
)
"""
_TOTALS = """
CREATE TABLE chaos_totals (
    window_start timestamptz NOT NULL, site text NOT NULL, events bigint NOT NULL,
    total numeric NOT NULL, least bigint NOT NULL, most bigint NOT NULL
)
"""
_PIPELINE = """
INSERT INTO tallyweir.pipeline (
    pipeline, definition, definition_hash, shards, bucket_seconds, last_sequence
)
VALUES (%s, '{}', '', 1, 1, %s)
"""


def fill(dsns: Mapping[str, str], sent: Sent, found: ObservedRun) -> None:
    """Write what was found into empty databases.

    Args:
        dsns: By database name.
        sent: Has the columns of the rows.
        found: What ``observe`` is to find again.
    """
    migrate(dsns[HOME])
    for name, dsn in dsns.items():
        with psycopg.connect(dsn) as connection:
            _fill_rows(connection, name, sent, found)
    with psycopg.connect(dsns[HOME]) as home:
        _fill_ledger(home, found)
        _fill_side_tables(home, found)


def _fill_rows(
    connection: Connection[Any], database: str, sent: Sent, found: ObservedRun
) -> None:
    connection.execute(_EVENTS)
    for row in found.rows:
        if row.database != database:
            continue
        source = sent[row.place]
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(
            microseconds=source.happened_at_us
        )
        connection.execute(
            "INSERT INTO chaos_events VALUES (%s, %s, %s, %s, '', %s, %s, %s)",
            (row.event_id, source.site, source.amount, moment, TOPIC, *row.place),
        )


def _fill_ledger(home: Connection[Any], found: ObservedRun) -> None:
    home.execute(_PIPELINE, (PIPELINE, found.last_sequence))
    for epoch in found.claims:
        home.execute(
            "INSERT INTO tallyweir.epoch_claim (pipeline, epoch, host, process_id) "
            "VALUES (%s, %s, '', 0)",
            (PIPELINE, epoch),
        )
    for batch in found.batches:
        home.execute(
            "INSERT INTO tallyweir.batch (pipeline, sequence, epoch, spark_batch_id, "
            "checksum, planned_at, staged_at, published_at) "
            "VALUES (%s, %s, %s, %s, 0, now(), now(), %s)",
            (
                *(PIPELINE, batch.sequence, batch.epoch, batch.spark_batch_id),
                batch.published_at,
            ),
        )
    for part in found.ranges:
        home.execute(
            "INSERT INTO tallyweir.batch_partition (pipeline, sequence, topic, "
            "partition, from_offset, until_offset, read, committed, duplicate, dead, "
            "late, expired, filtered) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 0, 0, 0)",
            (
                *(PIPELINE, part.sequence, TOPIC, part.partition, part.from_offset),
                *(part.until_offset, part.read, part.committed, part.duplicate),
                part.dead,
            ),
        )
    for partition, offset in found.positions.items():
        home.execute(
            "INSERT INTO tallyweir.partition_progress (pipeline, topic, partition, "
            "topic_id, next_offset) VALUES (%s, %s, %s, '', %s)",
            (PIPELINE, TOPIC, partition, offset),
        )


def _fill_side_tables(home: Connection[Any], found: ObservedRun) -> None:
    for place, event_id in found.duplicates:
        home.execute(
            "INSERT INTO tallyweir.duplicate_event (pipeline, kafka_topic, "
            "kafka_partition, kafka_offset, sequence, event_id) "
            "VALUES (%s, %s, %s, %s, 1, %s)",
            (PIPELINE, TOPIC, *place, event_id),
        )
    for place, reason in found.dead_letters:
        home.execute(
            "INSERT INTO tallyweir.dead_letter (pipeline, kafka_topic, "
            "kafka_partition, kafka_offset, sequence, reason, detail) "
            "VALUES (%s, %s, %s, %s, 1, %s, '')",
            (PIPELINE, TOPIC, *place, reason),
        )
    home.execute(_TOTALS)
    for (start, site), totals in found.windows:
        home.execute(
            "INSERT INTO chaos_totals VALUES (%s, %s, %s, %s, %s, %s)",
            (start, site, *totals),
        )
