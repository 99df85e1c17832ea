"""The ledger scenario as it is forked: with a window table, and more events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from integration_tests.ledger_scenario import TOPIC, fake_fingerprint
from tallyweir.sinks.postgres.server.naming import state_table
from tallyweir.sinks.postgres.tables.shadow_tables import read_shadow_tables

Connection = psycopg.Connection[TupleRow]

WINDOWS = "departures_by_hour"

_STATEMENTS = (
    """
    INSERT INTO tallyweir.batch (
        pipeline, sequence, epoch, spark_batch_id, watermark_before, watermark_after,
        checksum, planned_at, staged_at, published_at
    )
    SELECT pipeline, %(s)s, %(e)s, %(s)s, watermark, watermark, %(o)s, now(), now(),
           now()
    FROM tallyweir.pipeline
    WHERE pipeline = %(p)s
    """,
    """
    INSERT INTO tallyweir.batch_partition
    SELECT %(p)s, %(s)s, %(t)s, 0, %(o)s, %(o)s + 1, 1, 1, 0, 0, 0, 0, 0
    """,
    "UPDATE tallyweir.pipeline SET last_sequence = %(s)s WHERE pipeline = %(p)s",
    """
    UPDATE tallyweir.partition_progress SET next_offset = %(o)s + 1
    WHERE pipeline = %(p)s AND partition = 0
    """,
)


def add_windows(connection: Connection) -> None:
    """Give the scenario its window table, where readers look, and its open windows."""
    connection.execute("ALTER TABLE departures SET SCHEMA public")
    connection.execute("SET search_path = public")
    connection.execute(
        f"CREATE TABLE {WINDOWS} (window_start timestamptz, window_end timestamptz, "
        "origin text, flights bigint, pane text, final boolean, "
        "PRIMARY KEY (window_start, origin))"
    )
    connection.execute(
        f"INSERT INTO {WINDOWS} SELECT t, t + interval '1 hour', 'JFK', 7, 'on_time', "
        "t < '2026-03-01 02:00+00' FROM generate_series('2026-03-01 00:00+00', "
        "'2026-03-01 03:00+00', interval '1 hour') AS t"
    )
    ((number,),) = connection.execute(
        "SELECT pipeline_number FROM tallyweir.pipeline"
    ).fetchall()
    connection.execute(
        sql.SQL(
            "CREATE TABLE {} AS SELECT window_start, window_end, origin, flights, "
            "flights AS tallyweir_events "
            "FROM {} WHERE NOT final"
        ).format(state_table(number, WINDOWS), sql.Identifier(WINDOWS))
    )
    connection.execute(
        "UPDATE tallyweir.pipeline SET definition = jsonb_set(definition, "
        """'{outputs,1,by}', '["origin"]')"""
    )
    connection.commit()


def publish_as(connection: Connection, pipeline: str) -> None:
    """Let a pipeline commit one more event at orders[0], in a table of its own."""
    table = read_shadow_tables(connection, pipeline).get("departures", "departures")
    ((offset, sequence),) = connection.execute(
        "SELECT next_offset, last_sequence + 1 FROM tallyweir.partition_progress "
        "JOIN tallyweir.pipeline USING (pipeline) "
        "WHERE pipeline = %s AND partition = 0",
        (pipeline,),
    ).fetchall()
    claimed = (
        "INSERT INTO tallyweir.epoch_claim (pipeline, epoch, host, process_id) "
        "SELECT %(p)s, max(epoch) + 1, 'test', 1 FROM tallyweir.epoch_claim "
        "WHERE pipeline = %(p)s RETURNING epoch"
    )
    values: dict[str, Any] = {"p": pipeline, "o": offset, "s": sequence, "t": TOPIC}
    values["e"] = connection.execute(claimed, values).fetchall()[0][0]
    for statement in _STATEMENTS:
        connection.execute(statement, values)
    connection.execute(
        "INSERT INTO tallyweir.batch_output VALUES (%s, %s, %s, 'append', 1, 1, 0, 0)",
        (pipeline, sequence, table),
    )
    at = datetime(2026, 3, 1, 3, tzinfo=UTC)
    connection.execute(
        f"INSERT INTO {table} VALUES (%s, %s, %s, 0, %s)".encode(),
        (f"{pipeline}'s {offset}", at, TOPIC, offset),
    )
    key = connection.execute("SELECT fingerprint_key FROM tallyweir.installation")
    fingerprint = fake_fingerprint(key.fetchall()[0][0], f"0-{offset}")[0]
    connection.execute(
        "INSERT INTO tallyweir.seen_id_run (pipeline, bucket, sequence, ids, first, "
        "last, fingerprints) SELECT %(p)s, max(bucket), %(s)s, 1, %(f)s, %(f)s, %(f)s "
        "FROM tallyweir.seen_id_run WHERE pipeline = %(p)s",
        {**values, "f": fingerprint},
    )
    connection.commit()
