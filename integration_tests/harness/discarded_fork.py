"""A fork of the ledger scenario, with rows in every table of ours, and its discard."""

from __future__ import annotations

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from integration_tests.harness.forked_ledger import WINDOWS, add_windows
from integration_tests.ledger_scenario import PIPELINE
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.server.naming import (
    revisions_table,
    staging_schema,
    state_table,
)
from tallyweir.sinks.postgres.steering import ActRequest, Discarded

Connection = psycopg.Connection[TupleRow]

FORK = "departures-2"
SHADOW = "departures__departures_2"
SHADOW_WINDOWS = f"{WINDOWS}__departures_2"
#: Every schema, with its relations.
SHAPE = """
SELECT nspname, relname, relkind::text
FROM pg_namespace LEFT JOIN pg_class ON relnamespace = pg_namespace.oid
WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' ORDER BY 1, 2
"""

#: Of a pipeline that the ledger scenario was forked into, whose last claim is an act.
_STATEMENTS = (
    (
        "pipeline_version (pipeline, version, definition, definition_hash, "
        "from_sequence, epoch, reason) "
        "VALUES (%(p)s, 1, '{}', 'hash', 0, %(e)s, 'test')"
    ),
    (
        "offset_reset (pipeline, epoch, topic, partition, from_offset, until_offset, "
        "after_sequence) VALUES (%(p)s, %(e)s, 'orders', 9, 5, 2, 1)"
    ),
    "restore VALUES (%(p)s, %(e)s, 'kept', 1, 1)",
    (
        "accepted_gap (pipeline, topic, partition, from_offset, until_offset, "
        "after_sequence, reason) VALUES (%(p)s, 'orders', 9, 0, 1, 1, 'test')"
    ),
    (
        "accepted_loss (pipeline, output_table, through_sequence, rows, reason) "
        "VALUES (%(p)s, 'departures', 1, 1, 'test')"
    ),
    "batch_measures VALUES (%(p)s, 1, '{}')",
    "batch_run VALUES (%(p)s, 'history', 1, 'append')",
    "batch_run_input VALUES (%(p)s, 'history', 0, 'file', 'checksum')",
    "batch_branch VALUES (%(p)s, 1, 'branch', 'gid', now())",
    "replaced_row VALUES (%(p)s, 'departures', 'orders', 9, 0, 1, 'id')",
    (
        "redrive (pipeline, kafka_topic, kafka_partition, kafka_offset, attempt, "
        "reason) VALUES (%(p)s, 'orders', 9, 0, 1, 'test')"
    ),
    "keyed_state VALUES (%(p)s, 'by_key', '[]', 'name', '', '1', 1, NULL, 1)",
    "keyed_timer VALUES (%(p)s, 'by_key', '[]', 'name', 0, 'event', now(), 1)",
    "erased_id VALUES (%(p)s, decode(repeat('00', 16), 'hex'), %(e)s)",
    "erased_row VALUES (%(p)s, 'departures', 'orders', 9, 0, %(e)s)",
    "erased_result VALUES (%(p)s, 'by_key', 1, %(e)s, 1)",
    "outbox VALUES (%(p)s, 1, 'orders', 9, 0, 'mail', NULL, NULL, '\\x00')",
    "pause (pipeline, epoch, reason) VALUES (%(p)s, %(e)s, 'test')",
    (
        "drain (pipeline, epoch, closes_windows, drained_epoch) "
        "VALUES (%(p)s, 1, true, %(e)s)"
    ),
    "receipt (pipeline, is_verified, summary, batches) VALUES (%(p)s, true, '', 1)",
    "scaling_bounds (pipeline) VALUES (%(p)s)",
    (
        "scaling_decision (pipeline, epoch, because, reason, executors_there, "
        "executor_cores, tasks_max) VALUES (%(p)s, %(e)s, 'backlog', '', 1, 1, 1)"
    ),
    (
        "driver_log (pipeline, at, level, event, sequence, detail) "
        "VALUES (%(p)s, now(), 'error', 'driver ended', 1, '{}')"
    ),
    (
        "profile (pipeline, kind, host, epoch, seconds, samples, svg) "
        "VALUES (%(p)s, 'jvm', 'host', 1, 1, 1, '')"
    ),
    "sample VALUES (%(p)s, 'decode', '', 1, '[]', '[]')",
    (
        "pipeline_gauge (pipeline, at, prepared, prepared_s, in_doubt, in_doubt_s, "
        "state_bytes) VALUES (%(p)s, now(), 0, 0, 0, 0, 0)"
    ),
)
_ALERT = """
WITH fired AS (
    INSERT INTO tallyweir.alert (
        rule, pipeline, severity, since, value, told, observed_at, fired_at
    )
    VALUES ('stalled', %(p)s, 'page', now(), 1, 'it is', now(), now())
    RETURNING alert_id
)
INSERT INTO tallyweir.alert_delivery (alert_id, channel, about, due_at)
SELECT alert_id, 'mail', 'firing', now()
FROM fired
"""


def add_own_tables(connection: Connection) -> None:
    """Give the scenario its window table, and call its catalog as a driver does."""
    add_windows(connection)
    ((number,),) = connection.execute("SELECT pipeline_number FROM tallyweir.pipeline")
    connection.execute(
        f"ALTER TABLE tallyweir.seen_id_run_test RENAME TO seen_id_run_p{number}"
    )
    connection.commit()


def request(
    kind: str, pipeline: str = PIPELINE, *, dry_run: bool = False
) -> ActRequest:
    """Ask for an act."""
    return ActRequest(pipeline=pipeline, kind=kind, reason="too fine", dry_run=dry_run)


def fork(connection: Connection) -> None:
    """Fork the scenario."""
    connection.rollback()
    steering.fork(connection, request("fork"), FORK)


def discard(
    connection: Connection, pipeline: str = FORK, *, dry_run: bool = False
) -> Discarded:
    """Discard the fork, or another pipeline."""
    connection.rollback()
    return steering.discard(connection, request("discard", pipeline, dry_run=dry_run))


def fill_tables(connection: Connection) -> None:
    """Give the fork what it lacks, in our tables and its own."""
    ((number, epoch),) = connection.execute(
        "SELECT pipeline_number, max(epoch) FROM tallyweir.pipeline "
        "JOIN tallyweir.epoch_claim USING (pipeline) WHERE pipeline = %s "
        "GROUP BY pipeline_number",
        (FORK,),
    ).fetchall()
    values = {"p": FORK, "e": epoch}
    for statement in _STATEMENTS:
        connection.execute(f"INSERT INTO tallyweir.{statement}".encode(), values)
    connection.execute(_ALERT, values)
    schema = staging_schema(number, epoch)
    for made in (
        sql.SQL("CREATE TABLE {} (LIKE {})").format(
            sql.Identifier(revisions_table(SHADOW_WINDOWS)),
            sql.Identifier(SHADOW_WINDOWS),
        ),
        # Of an output that it has no more.
        sql.SQL("CREATE TABLE {} (events bigint)").format(
            state_table(number, "former")
        ),
        sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)),
        sql.SQL("CREATE UNLOGGED TABLE {} (events bigint)").format(
            sql.Identifier(schema, "output_0.0")
        ),
    ):
        connection.execute(made)
    connection.commit()
    steering.take_snapshot(connection, FORK, "kept", reason="test")
