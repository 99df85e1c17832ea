"""What the relay reads from the home database, and the lock that makes it the only one.

Lock, messages and cursor belong to one session. A relay that reads messages through it
holds the lock at that moment. When the session ends the feed is over, and it never
opens another session by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.locks import LockedSession
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition

_SQL = load_statements("tallyweir.sinks.postgres.records", "relay.sql")

#: An arbitrary number; it must be the same for every Tallyweir.
ADVISORY_LOCK = 7_255_946_012
#: A relay that sends no statement for so long loses its lock. This is longer than it
#: ever takes between two statements.
IDLE_TIMEOUT_S = 60.0

#: The streams of a pipeline, each with a cursor of its own.
DEAD_LETTERS = "dead_letter"
OUTBOX = "outbox"

#: Rows that the server sends at a time: a payload may have a megabyte.
_ROWS_A_FETCH = 64

_Connection = psycopg.Connection[TupleRow]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RelayPlace:
    """Where a message stands in the order of its stream.

    Attributes:
        sequence: The batch's sequence.
        topic: Topic that its event was read from.
        partition: Partition that its event was read from.
        offset: Offset of its event.
        target: The topic that an outbox message goes to: one event may cause several
            messages. Empty for dead letters and for cursors.
    """

    sequence: int
    topic: str
    partition: int
    offset: int
    target: str = ""


#: Before every message: sequences begin at 1.
BEGINNING = RelayPlace(sequence=0, topic="", partition=-1, offset=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that could not become a result.

    Attributes:
        place: Where it was read, and in which batch.
        source_topic: The Kafka topic that it came from; for a batch run, the first
            topic of the pipeline's definition.
        renewed_id: The topic's id, if another topic had its name before; otherwise
            None.
        kafka_timestamp: The record's timestamp.
        reason: Stable code.
        detail: What was seen, for people.
        key: The record's key, unchanged.
        payload: The record's value, unchanged.
    """

    place: RelayPlace
    source_topic: str
    renewed_id: str | None
    kafka_timestamp: datetime | None
    reason: str
    detail: str
    # Producers may write anything into these, so they are kept out of logs.
    key: bytes | None = field(repr=False)
    payload: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    """A message that a batch has left in the outbox.

    Attributes:
        place: The place of its event, and the topic that it goes to.
        source_topic: As for a dead letter.
        renewed_id: As for a dead letter.
        event_id: The producer's ID of the event.
        key: The message's key.
        value: The message's value, JSON in UTF-8.
    """

    place: RelayPlace
    source_topic: str
    renewed_id: str | None
    event_id: str | None
    key: bytes | None = field(repr=False)
    value: bytes = field(repr=False)


class RelayFeed(LockedSession):
    """A ``LockedSession``, with the reads and writes of the relay."""

    def __init__(self, dsn: str, *, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
        super().__init__(
            dsn,
            lock=ADVISORY_LOCK,
            application_name="tallyweir relay",
            idle_timeout_s=idle_timeout_s,
        )

    def list_pipelines(self) -> list[str]:
        """Return the names of all pipelines, sorted."""
        rows = self._read("listing pipelines", "list_pipelines")
        return [pipeline for (pipeline,) in rows]

    def read_cursor(self, pipeline: str, stream: str) -> RelayPlace:
        """Return the place of the last message sent; ``BEGINNING`` before the first."""
        rows = self._read(
            "reading the relay's cursor",
            "read_cursor",
            {"pipeline": pipeline, "stream": stream},
        )
        return _place(rows[0]) if rows else BEGINNING

    def read_dead_letters(
        self, pipeline: str, after: RelayPlace, *, messages_max: int, bytes_max: int
    ) -> list[DeadLetter]:
        """Read the next dead letters in commit order, of batches visible everywhere.

        Args:
            pipeline: The pipeline's name.
            after: The last message sent.
            messages_max: Largest number of messages.
            bytes_max: The list ends with the message that exceeds this, so that even a
                large message passes.
        """
        values = {
            "pipeline": pipeline,
            "messages_max": messages_max,
            **_columns(after),
        }
        return self._read_some("read_dead_letters", values, _dead_letter, bytes_max)

    def read_outbox(
        self, pipeline: str, after: RelayPlace, *, messages_max: int, bytes_max: int
    ) -> list[OutboxMessage]:
        """Read the next messages of the outbox; as ``read_dead_letters``."""
        values = {
            "pipeline": pipeline,
            "messages_max": messages_max,
            **_columns(after),
        }
        return self._read_some("read_outbox", values, _outbox_message, bytes_max)

    def _read_some(
        self,
        statement: str,
        values: Mapping[str, object],
        message_of: Callable[[TupleRow], _T],
        bytes_max: int,
    ) -> list[_T]:
        """Read messages; each row ends with key and value."""

        def read(connection: _Connection) -> list[_T]:
            messages = []
            size = 0
            with connection.cursor(name=statement) as cursor:
                cursor.itersize = _ROWS_A_FETCH
                cursor.execute(
                    _SQL[statement].format(of_topic=_SQL["of_topic"]), values
                )
                for row in cursor:
                    messages.append(message_of(row))
                    size += sum(len(part or b"") for part in row[-2:])
                    if size >= bytes_max:
                        break
            return messages

        return self.run("reading messages", read)

    def count_backlog(self, pipeline: str, stream: str) -> int:
        """Count the messages of a stream that are not sent yet."""
        statement = "count_dead_letters" if stream == DEAD_LETTERS else "count_outbox"
        values = {"pipeline": pipeline, **_columns(self.read_cursor(pipeline, stream))}
        ((rows,),) = self._read("counting a backlog", statement, values)
        return int(rows)

    def move_cursor(
        self,
        pipeline: str,
        stream: str,
        *,
        after: RelayPlace,
        to: RelayPlace,
        messages: int,
    ) -> None:
        """Note that the broker has all messages up to a place.

        This deletes messages of the outbox.

        Args:
            pipeline: The pipeline's name.
            stream: The stream of the messages.
            after: The cursor before these messages; it must not have moved.
            to: The place of the last message.
            messages: Number of messages.

        Raises:
            RetryableError: ``RELAY_CURSOR_MOVED``, or the server did not answer.

        Crash:
            Before the commit the messages are sent again, under the same IDs; after it
            they are not.
        """
        values = {
            "pipeline": pipeline,
            "stream": stream,
            "messages": messages,
            **_columns(to),
            "from_sequence": after.sequence,
            "from_topic": after.topic,
            "from_partition": after.partition,
            "from_offset": after.offset,
        }

        def move(connection: _Connection) -> None:
            moved = connection.execute(_SQL["move_cursor"], values).rowcount
            gone = messages
            if stream == OUTBOX:
                gone = connection.execute(_SQL["delete_outbox"], values).rowcount
            if (moved, gone) != (1, messages):
                raise RetryableError(
                    "RELAY_CURSOR_MOVED",
                    saw=f"The cursor of {pipeline}'s {stream} stream is not at "
                    f"{after}, or its messages are not those that were sent.",
                    why="Another process changed them at the same time.",
                    fix="Nothing to do: the relay continues from the new position.",
                )

        self.run("moving the relay's cursor", move)

    def read_visible_offsets(self) -> dict[str, dict[TopicPartition, int]]:
        """Return, by pipeline, the offsets up to which all databases have events."""
        found: dict[str, dict[TopicPartition, int]] = {}
        for pipeline, topic, partition, next_offset in self._read(
            "reading offsets", "read_visible_offsets"
        ):
            offsets = found.setdefault(pipeline, {})
            offsets[TopicPartition(topic, partition)] = next_offset
        return found

    def _read(
        self, doing: str, statement: str, values: Mapping[str, object] | None = None
    ) -> Sequence[TupleRow]:
        return self.run(
            doing, lambda c: c.execute(_SQL[statement], values or {}).fetchall()
        )


def _place(row: TupleRow) -> RelayPlace:
    sequence, topic, partition, offset = row
    return RelayPlace(
        sequence=sequence, topic=topic, partition=partition, offset=offset
    )


def _columns(place: RelayPlace) -> dict[str, object]:
    return {
        "sequence": place.sequence,
        "kafka_topic": place.topic,
        "kafka_partition": place.partition,
        "kafka_offset": place.offset,
        "target": place.target,
    }


def _dead_letter(row: TupleRow) -> DeadLetter:
    *place, source_topic, renewed_id = row[:6]
    kafka_timestamp, reason, detail, key, payload = row[6:]
    return DeadLetter(
        place=_place(tuple(place)),
        source_topic=source_topic,
        renewed_id=renewed_id,
        kafka_timestamp=kafka_timestamp,
        reason=reason,
        detail=detail,
        key=None if key is None else bytes(key),
        payload=None if payload is None else bytes(payload),
    )


def _outbox_message(row: TupleRow) -> OutboxMessage:
    sequence, topic, partition, offset, target, source_topic, *message = row
    renewed_id, event_id, key, value = message
    return OutboxMessage(
        place=RelayPlace(
            sequence=sequence,
            topic=topic,
            partition=partition,
            offset=offset,
            target=target,
        ),
        source_topic=source_topic,
        renewed_id=renewed_id,
        event_id=event_id,
        key=None if key is None else bytes(key),
        value=bytes(value),
    )
