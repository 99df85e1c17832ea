"""Tells whether readers see the outcome of a record in every database."""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import TopicPartition, is_kafka_topic

_SQL = load_statements("tallyweir.sinks.postgres.audit.checks", "visible_offset.sql")


def is_visible(
    connection: Connection[TupleRow], pipeline: str, place: TopicPartition, offset: int
) -> bool:
    """Tell whether everything of a partition through an offset is visible.

    What is visible stays visible after any crash; only a restore takes it back. A
    record that became a dead letter, a duplicate or anything else is as visible as a
    committed one: the answer means that there is nothing left to wait for.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline's name.
        place: A partition of a topic or of a batch run. A partition of which the
            pipeline has read nothing yet is not visible.
        offset: The last offset to wait for.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, or ``TOPIC_NOT_READ``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="looking for an offset"):
        topics = read_pipeline(connection, pipeline).source.topics
        rows = fetch(
            connection,
            _SQL["visible_offset"],
            pipeline=pipeline,
            topic=place.topic,
            partition=place.partition,
        )
    if place.topic not in topics and is_kafka_topic(place.topic):
        reads = ", ".join(topics) or "no topic, and has only had batch runs"
        raise ConfigurationError(
            "TOPIC_NOT_READ",
            saw=f"Pipeline {pipeline} reads {reads}; it was asked for {place.topic}.",
            why="This pipeline will never publish anything from that topic.",
            fix="Correct the topic or the pipeline; the topic of a batch run is "
            "batch:RUN.",
        )
    return any(row["next_offset"] > offset for row in rows)
