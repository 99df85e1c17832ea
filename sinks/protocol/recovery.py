"""Where a starting driver may resume: Postgres' offsets compared with the broker's.

This module is pure: the caller passes what Postgres stores and what the broker reports.
A lost answer to COMMIT comes here only if ``coordinator`` has published again in vain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPosition:
    """What the home database knows about a partition."""

    topic_id: str
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPosition:
    """What the broker says about a partition.

    Attributes:
        log_end_offset: End of the log, or the start of a Kafka transaction that is
            still open.
        held_back: Offsets after that, which cannot be read yet.
    """

    topic_id: str
    log_start_offset: int
    log_end_offset: int
    held_back: int = 0


def decide_start(
    stored: Mapping[TopicPartition, StoredPosition],
    broker: Mapping[TopicPartition, BrokerPosition],
) -> dict[TopicPartition, int]:
    """Choose the offset that each partition resumes from.

    A topic without stored offsets begins at the start of its log. A partition that was
    added to a topic later begins at 0. Offsets of a topic that the pipeline no longer
    reads stay as they are: if it reads the topic again, it goes on from them.

    Args:
        stored: What the home database knows.
        broker: Every partition of the topics that are to be read.

    Raises:
        ConfigurationError: ``TOPIC_RECREATED``, ``PARTITION_MISSING``,
            ``RETENTION_GAP`` or ``OFFSET_PAST_END``. Each means that events were lost
            outside of the pipeline, and that going on would hide the loss.
    """
    check_topic_identity(topic_ids(stored), topic_ids(broker))
    read, met = set(topic_ids(broker)), set(topic_ids(stored))
    missing = sorted(tp for tp in stored.keys() - broker.keys() if tp.topic in read)
    if missing:
        raise ConfigurationError(
            "PARTITION_MISSING",
            saw=f"The broker no longer has {', '.join(map(str, missing))}.",
            why="Its unread events are no longer available.",
            fix="Restore the partition, or start a new pipeline name on this topic.",
        )
    starts: dict[TopicPartition, int] = {}
    for topic_partition, position in broker.items():
        known = stored.get(topic_partition)
        if known is not None:
            _check_reachable(topic_partition, known.next_offset, position)
            starts[topic_partition] = known.next_offset
        elif topic_partition.topic in met:
            _check_reachable(topic_partition, 0, position)
            starts[topic_partition] = 0
        else:
            starts[topic_partition] = position.log_start_offset
    return starts


def check_topic_identity(stored: Mapping[str, str], broker: Mapping[str, str]) -> None:
    """Refuse a topic that was deleted and made again under its old name.

    Offsets cannot show it: once the new topic has grown past the stored offset,
    reading on would silently skip everything before that offset.

    Args:
        stored: Topic to the id that the stored offsets belong to.
        broker: Topic to the id that it has now.

    Raises:
        ConfigurationError: ``TOPIC_RECREATED``.
    """
    for topic, known in stored.items():
        found = broker.get(topic, known)
        if found != known:
            raise ConfigurationError(
                "TOPIC_RECREATED",
                saw=f"Topic {topic} has id {found}; the pipeline's offsets belong to "
                f"id {known}.",
                why="The topic was deleted and recreated, so its offsets now refer "
                "to other events.",
                fix="Run tallyweir offsets accept-topic PIPELINE --reason TEXT to "
                "read the topic from its start and keep IDs, windows and state "
                "(add --dry-run to preview); or restore the old topic.",
            )


def topic_ids(
    positions: Mapping[TopicPartition, StoredPosition | BrokerPosition],
) -> dict[str, str]:
    """Return the id of each topic among some positions."""
    return {
        topic_partition.topic: position.topic_id
        for topic_partition, position in positions.items()
    }


def _check_reachable(
    topic_partition: TopicPartition, next_offset: int, position: BrokerPosition
) -> None:
    if next_offset < position.log_start_offset:
        lost = position.log_start_offset - next_offset
        raise ConfigurationError(
            "RETENTION_GAP",
            saw=f"{topic_partition}: the pipeline's next offset is {next_offset}, the "
            f"log starts at {position.log_start_offset}.",
            why=f"Kafka's retention deleted {lost} offsets before they were read.",
            fix="Recover the events elsewhere, then accept the gap with a reason: "
            "tallyweir accept-gap PIPELINE --reason '…'.",
        )
    if next_offset > position.log_end_offset:
        raise ConfigurationError(
            "OFFSET_PAST_END",
            saw=f"{topic_partition}: the pipeline's next offset is {next_offset}, the "
            f"log ends at {position.log_end_offset}.",
            why="The broker lost events that were committed here, or the topic was "
            "truncated.",
            fix="Restore the broker's log, or start a new pipeline name.",
        )
