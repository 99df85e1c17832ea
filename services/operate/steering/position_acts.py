"""Acts that ask Kafka for its positions first: moves, recreated topics, restores.

People write the place to go on as a time or as offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.services.kafka.pipeline_offsets import offsets_at
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres import audit, steering
from tallyweir.sinks.postgres.steering import AcceptedTopic, MovedPosition, Restored
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import TopicPartition

_PUT_ASIDE = {
    "dead_letter": "dead letters",
    "expired_event": "expired events",
    "duplicate_event": "duplicates",
    "filtered_event": "filtered events",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTarget:
    """The place where a pipeline is to go on: a moment, or offsets.

    Attributes:
        moment: Go on at the first record of each partition that Kafka got at this
            moment or later; None if there are offsets.
        offsets: The next offsets to read, of the partitions to move.
    """

    moment: datetime | None
    offsets: dict[TopicPartition, int]


def parse_target(to_time: str | None, to_offsets: Sequence[str]) -> MoveTarget:
    """Read a target: ISO 8601 with a time zone, or several ``TOPIC:PARTITION=OFFSET``.

    Raises:
        ConfigurationError: ``RESET_TARGET``.
    """
    if (to_time is None) == (not to_offsets):
        raise ConfigurationError(
            "RESET_TARGET",
            saw="The call needs either a time or offsets.",
            why="The pipeline can go on from one place only.",
            fix="Give one of them.",
        )
    return MoveTarget(
        moment=None if to_time is None else _parse_time(to_time),
        offsets=_parse_offsets(to_offsets),
    )


def move_positions(  # noqa: PLR0913 - an act and what it needs
    home: Connection[TupleRow],
    bootstrap: str,
    pipeline: str,
    target: MoveTarget,
    *,
    reason: str,
    dry_run: bool,
) -> tuple[MovedPosition, ...]:
    """Let a pipeline go on from a target, by ``steering.reset_offsets``.

    Raises:
        ConfigurationError: As ``reset_offsets``, or ``TOPIC_MISSING``.
        RetryableError: As ``reset_offsets``, or ``KAFKA_UNREACHABLE``.
    """
    topics = audit.read_source(home, pipeline).topics
    broker = KafkaAdmin(bootstrap, *topics).read_positions()
    targets = (
        target.offsets
        if target.moment is None
        else offsets_at(bootstrap, home, pipeline, target.moment, broker)
    )
    return steering.reset_offsets(
        home, pipeline, targets, broker, reason=reason, dry_run=dry_run
    )


def move_told(move: MovedPosition) -> tuple[str, ...]:
    """Report what a move means, in lines; details of a partition are indented."""
    where = f"{move.topic}[{move.partition}] {move.stood_at:,} -> {move.target:,}"
    if move.skipped:
        never = f"up to {move.skipped:,} records are skipped and never read"
        return (f"{where}: {never}",)
    part = f", {move.cut} of them only in part" if move.cut else ""
    settled = (
        f"  they belong to {move.batches:,} batches{part}, which read {move.read:,} "
        f"records and committed {move.committed:,}"
    )
    lines = [f"{where}: up to {move.read_again:,} records are read again", settled]
    for table, rows in move.rows.items():
        lines.append(
            f"  {rows:,} are rows of {table}: they stay, and count as duplicates"
        )
    for kind, records in move.put_aside.items():
        fate = "stay so" if kind == "duplicate_event" else "get another chance"
        lines.append(f"  {records:,} are {_PUT_ASIDE[kind]}: they {fate}")
    return tuple(lines)


def accept_recreated(
    home: Connection[TupleRow],
    bootstrap: str,
    pipeline: str,
    *,
    reason: str,
    dry_run: bool,
) -> tuple[AcceptedTopic, ...]:
    """Let a pipeline read topics that were recreated, by ``steering.accept_topics``.

    Raises:
        ConfigurationError: As ``accept_topics``, or ``TOPIC_MISSING``.
        RetryableError: As ``accept_topics``, or ``KAFKA_UNREACHABLE``.
    """
    topics = audit.read_source(home, pipeline).topics
    broker = KafkaAdmin(bootstrap, *topics).read_positions()
    return steering.accept_topics(
        home, pipeline, broker, reason=reason, dry_run=dry_run
    )


def accepted_told(accepted: AcceptedTopic) -> tuple[str, ...]:
    """Report what accepting a topic means, in lines."""

    def at(offsets: Mapping[int, int]) -> str:
        return ", ".join(f"{one}: {offset:,}" for one, offset in offsets.items())

    return (
        f"{accepted.topic} has id {accepted.topic_id}; it had {accepted.former_id}",
        f"  the pipeline reads it from (by partition) {at(accepted.begins_at)}",
        (
            "  of the former topic, which the pipeline had read to "
            f"{at(accepted.stood_at)}, positions are noted under {accepted.former}"
        ),
        *(
            f"  {rows:,} rows of {table} say so in kafka_topic"
            for table, rows in accepted.rows.items()
        ),
        "  IDs, windows and state stay: an event that arrives again is a duplicate",
    )


def _parse_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigurationError(
            "RESET_TARGET",
            saw=f"The time is {text!r}.",
            why="The time must name one instant, whatever the reader's time zone.",
            fix="Write it in the form 2026-05-03T04:00:00Z.",
        )
    return moment


def _parse_offsets(texts: Sequence[str]) -> dict[TopicPartition, int]:
    targets: dict[TopicPartition, int] = {}
    for text in texts:
        place, _, offset = text.rpartition("=")
        topic, _, partition = place.rpartition(":")
        if not topic or not partition.isdecimal() or not offset.isdecimal():
            raise ConfigurationError(
                "RESET_TARGET",
                saw=f"The offset is {text!r}.",
                why="It must name a topic, a partition and an offset.",
                fix="Write it in the form flights:0=1200.",
            )
        targets[TopicPartition(topic, int(partition))] = int(offset)
    return targets


def restore_snapshot(  # noqa: PLR0913 - an act and what it needs
    home: Connection[TupleRow],
    bootstrap: str,
    pipeline: str,
    name: str,
    *,
    reason: str,
    dry_run: bool,
) -> Restored:
    """Take a pipeline back to a snapshot, by ``steering.restore``.

    Raises:
        ConfigurationError: As ``restore``, or ``TOPIC_MISSING``.
        RetryableError: As ``restore``, or ``KAFKA_UNREACHABLE``.
    """
    topics = audit.read_source(home, pipeline).topics
    broker = KafkaAdmin(bootstrap, *topics).read_positions()
    return steering.restore(
        home, pipeline, name, broker, reason=reason, dry_run=dry_run
    )


def restored_told(restored: Restored) -> tuple[str, ...]:
    """Report what was, or would be, taken back."""
    sent = (
        (restored.messages_sent, "messages of the outbox"),
        (restored.dead_letters_sent, "dead letters"),
    )
    whole = (
        f"taken back: {restored.batches:,} batches after batch "
        f"{restored.after_sequence}, which read {restored.records:,} records and "
        f"committed {restored.committed:,}"
    )
    lines = [whole]
    for table, rows in sorted(restored.rows.items()):
        lines.append(f"  {rows:,} rows of {table}")
    lines.append(f"  {restored.ids:,} seen IDs")
    for number, what in sent:
        if number:
            lines.append(
                f"  {number:,} {what} are in Kafka already and stay there; they are "
                "sent again under the same IDs"
            )
    lines += [
        f"  the snapshot {name}, which belongs to a later batch"
        for name in restored.dropped
    ]
    lines += [
        f"reads on: {place} from {offset:,}"
        for place, offset in restored.positions.items()
    ]
    return tuple(lines)
