"""Lets a pipeline go on with a topic that was deleted and created again.

An offset of the new topic names another event than the same offset of the old one. So
the ledger and the result tables keep what was read of the old one under a topic of its
own, ``former:ID:TOPIC``. No topic of Kafka can have that name, as with a batch run's.
Seen IDs, windows and keyed state have no positions, and stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
)
from tallyweir.sinks.postgres.records.relay_feed import ADVISORY_LOCK
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.steering.act import LOCK_TIMEOUT_MS, ActRequest, acting
from tallyweir.sinks.postgres.steering.offset_reset import check_nothing_in_doubt
from tallyweir.sinks.postgres.steering.snapshot import check_at_home
from tallyweir.sinks.postgres.tables.foreign_code import hold_tables
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition, former_topic
from tallyweir.sinks.protocol.recovery import BrokerPosition, topic_ids

_SQL = load_statements("tallyweir.sinks.postgres.steering", "topic_acceptance.sql")

#: Every table of the ledger that names positions, and its column of topics.
_POSITIONED = {
    "partition_progress": "topic",
    "batch_partition": "topic",
    "accepted_gap": "topic",
    "offset_reset": "topic",
    "dead_letter": "kafka_topic",
    "late_event": "kafka_topic",
    "expired_event": "kafka_topic",
    "duplicate_event": "kafka_topic",
    "filtered_event": "kafka_topic",
    "replaced_row": "kafka_topic",
    "erased_row": "kafka_topic",
    "redrive": "kafka_topic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedTopic:
    """A topic that was created again, and what was read of the one before.

    Attributes:
        former: The topic under which the old positions are noted from now on.
        former_id: The old topic's id in Kafka, as ``topic_id`` is that of the new one.
        stood_at: Where the pipeline stood in the old topic, by partition.
        begins_at: Where the pipeline begins to read the new topic, by partition.
        rows: How many rows were renamed, by result table.
    """

    topic: str
    former: str
    former_id: str
    topic_id: str
    stood_at: Mapping[int, int]
    begins_at: Mapping[int, int]
    rows: Mapping[str, int]


def accept_topics(  # noqa: PLR0913 - an act and what it needs
    connection: Connection[TupleRow],
    pipeline: str,
    broker: Mapping[TopicPartition, BrokerPosition],
    *,
    reason: str,
    dry_run: bool = False,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
) -> tuple[AcceptedTopic, ...]:
    """Read topics that were created again from the start of their logs, in one commit.

    Args:
        connection: To the home, outside a transaction.
        pipeline: The pipeline's name.
        broker: What the broker holds of the pipeline's topics.
        reason: Why, for people who ask later; kept permanently.
        dry_run: Do all of it, and roll it back.
        lock_timeout_ms: How long to wait for a publish that is under way.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``, ``REASON_MISSING``, ``NOT_AT_HOME``,
            ``FOREIGN_CODE`` or ``TOPIC_UNCHANGED``.
        RetryableError: ``BATCH_IN_DOUBT``, ``RELAY_AT_WORK``, ``SNAPSHOT_AT_WORK``; or
            a publish held the pipeline's row for too long.

    Crash:
        Before the COMMIT nothing has changed and no driver is fenced; after it a driver
        reads the new topics from their start, and a repeated call finds nothing to do.
    """
    request = ActRequest(
        pipeline=pipeline,
        kind="offsets accept-topic",
        reason=reason,
        dry_run=dry_run,
        lock_timeout_ms=lock_timeout_ms,
    )
    with acting(connection, request, snapshots_of=(pipeline,)) as act:
        check_nothing_in_doubt(connection, pipeline)
        audited = read_pipeline(connection, pipeline)
        check_at_home(audited)
        hold_tables(connection, audited, needs_all=True)
        _check_relayed(connection, pipeline)
        accepted = tuple(_accept_all(connection, audited, broker))
        act.detail["topics"] = [asdict(one) for one in accepted]
    return accepted


def _check_relayed(connection: Connection[TupleRow], pipeline: str) -> None:
    """Refuse while a relay may have sent messages that are about to be renamed."""
    values = {"pipeline": pipeline, "lock": ADVISORY_LOCK}
    if not fetch_one(connection, _SQL["hold_relay"], **values)["is_held"]:
        saw = "A relay is running."
    elif fetch_one(connection, _SQL["partly_sent"], **values)["is_left"]:
        saw = "Messages of the outbox, or the rest of a batch's dead letters, wait."
    else:
        connection.execute(_SQL["pass_cursor"], values)
        return
    raise RetryableError(
        "RELAY_AT_WORK",
        saw=saw,
        why="Message IDs contain positions, and positions get another topic name: "
        "messages that were sent would be sent again under another ID.",
        fix="Let the relay send everything, stop it, and try again; then start it.",
    )


def _accept_all(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    broker: Mapping[TopicPartition, BrokerPosition],
) -> Iterator[AcceptedTopic]:
    known = topic_ids(broker)
    stored: dict[str, tuple[str, dict[int, int]]] = {}
    for row in fetch(connection, _SQL["positions"], pipeline=pipeline.name):
        _, stood_at = stored.setdefault(row["topic"], (row["topic_id"], {}))
        stood_at[row["partition"]] = row["next_offset"]
    recreated = [
        (topic, topic_id, stood_at)
        for topic, (topic_id, stood_at) in sorted(stored.items())
        if known.get(topic, topic_id) != topic_id
    ]
    if not recreated:
        raise ConfigurationError(
            "TOPIC_UNCHANGED",
            saw=f"Every topic that pipeline {pipeline.name} reads is the one that its "
            "offsets belong to.",
            why="No topic has changed.",
            fix="Start the pipeline; tallyweir offsets reset moves its positions.",
        )
    for topic, former_id, stood_at in recreated:
        former = former_topic(topic, former_id)
        rows = _rename(connection, pipeline, topic, former)
        begins_at = {
            place.partition: position.log_start_offset
            for place, position in sorted(broker.items())
            if place.topic == topic
        }
        for partition, next_offset in begins_at.items():
            connection.execute(
                _SQL["begin"],
                {
                    "pipeline": pipeline.name,
                    "topic": topic,
                    "partition": partition,
                    "topic_id": known[topic],
                    "next_offset": next_offset,
                },
            )
        yield AcceptedTopic(
            topic=topic,
            former=former,
            former_id=former_id,
            topic_id=known[topic],
            stood_at=stood_at,
            begins_at=begins_at,
            rows=rows,
        )


def _rename(
    connection: Connection[TupleRow], pipeline: AuditedPipeline, topic: str, former: str
) -> dict[str, int]:
    values = {"pipeline": pipeline.name, "topic": topic, "former": former}
    for table, column in _POSITIONED.items():
        statement = _SQL["rename"].format(
            table=sql.Identifier("tallyweir", table), topic=sql.Identifier(column)
        )
        connection.execute(statement, values)
    return {
        output.table: connection.execute(
            _SQL["rename_rows"].format(table=output.identifier), values
        ).rowcount
        for output in pipeline.appends
    }
