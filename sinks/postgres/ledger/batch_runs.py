"""Reads what the home database knows about batch runs."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow, dict_row

from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.batch_run import (
    BatchRun,
    Disposition,
    RunInput,
    run_topic,
)
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.votes import EventCounts

_CLAIM = load_statements("tallyweir.sinks.postgres.ledger", "claim.sql")


def read_published_run(
    connection: psycopg.Connection[TupleRow], pipeline: str, run: str
) -> BatchRun | None:
    """Return the published run of this name; None if there is none.

    Raises:
        TallyweirError: As ``translate`` finds.
    """
    with translated("reading a batch run"):
        rows = connection.execute(
            _CLAIM["read_run"], {"pipeline": pipeline, "run": run}
        ).fetchall()
    if not rows:
        return None
    return BatchRun(
        name=run,
        inputs=tuple(
            RunInput(partition=partition, name=name, checksum=checksum)
            for partition, name, checksum, _ in rows
        ),
        disposition=Disposition(rows[0][-1]),
    )


def read_run_counts(
    connection: psycopg.Connection[TupleRow], pipeline: str, run: str
) -> EventCounts:
    """Return the event counts of a published run.

    Raises:
        TallyweirError: As ``translate`` finds.
    """
    with (
        translated("reading a batch run"),
        connection.cursor(row_factory=dict_row) as cursor,
    ):
        (row,) = cursor.execute(
            _CLAIM["run_counts"], {"pipeline": pipeline, "run": run}
        ).fetchall()
    return EventCounts(**row)


def read_input_names(
    connection: psycopg.Connection[TupleRow], pipeline: str
) -> dict[TopicPartition, str]:
    """Return the input's name for each partition of the runs' topics, in a snapshot."""
    rows = connection.execute(_CLAIM["input_names"], {"pipeline": pipeline})
    return {
        TopicPartition(run_topic(run), partition): name for run, partition, name in rows
    }
