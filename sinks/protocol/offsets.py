"""Kafka positions, and the compare-and-set that makes a replay harmless.

Invariants::

    from_offset <= until_offset                 half-open, as Spark plans them
    committed offset == the next offset to read
    stored next_offset == range.from_offset     or the batch may not be published
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tallyweir.sinks.protocol.errors import FatalError

_POSITION = re.compile(r"(.+)\[([0-9]{1,9})\]@([0-9]{1,18})")


def is_kafka_topic(topic: str) -> bool:
    """Tell a Kafka topic from a name that stands for one in the ledger.

    Kafka allows no colon in a topic's name.
    """
    return ":" not in topic


def former_topic(topic: str, topic_id: str) -> str:
    """Return the ledger's name for a topic that was since deleted and made again."""
    return f"former:{topic_id}:{topic}"


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one Kafka topic, or of a name that stands for one."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


def parse_position(text: str) -> tuple[TopicPartition, int] | None:
    """Read a record's position as people write it: ``orders[3]@1042``."""
    found = _POSITION.fullmatch(text)
    if found is None:
        return None
    return TopicPartition(found[1], int(found[2])), int(found[3])


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Half-open range of offsets of one partition; may be empty.

    The number of records in it can be smaller than its length: markers of Kafka
    transactions and compaction leave gaps.
    """

    topic_partition: TopicPartition
    from_offset: int
    until_offset: int

    def __post_init__(self) -> None:
        assert self.from_offset >= 0, f"negative offset in {self}"
        assert self.from_offset <= self.until_offset, f"range runs backwards: {self}"

    def __str__(self) -> str:
        return f"{self.topic_partition} {self.from_offset}..{self.until_offset}"

    @property
    def length(self) -> int:
        return self.until_offset - self.from_offset


class OffsetsVerdict(Enum):
    """How a planned batch relates to the offsets that Postgres holds."""

    NEXT = "next"
    ALREADY_COMMITTED = "already_committed"


def compare_offsets(
    stored: Mapping[TopicPartition, int], ranges: Sequence[OffsetRange]
) -> OffsetsVerdict:
    """Tell whether a batch is the next one or was committed before.

    Args:
        stored: The next offset to read of every partition that Postgres knows.
        ranges: What the batch covers. A partition that is missing in ``stored``
            counts as starting at 0, where Spark also starts new partitions.

    Returns:
        ``NEXT`` if every range starts at the stored offset; ``ALREADY_COMMITTED`` if
        every range that is not empty ends at or before the stored offset.

    Raises:
        FatalError: ``OFFSETS_DISAGREE`` in all other cases: a gap, an overlap, or
            ranges only some of which are committed. Guessing would lose or double
            events.
    """
    if all(stored.get(r.topic_partition, 0) == r.from_offset for r in ranges):
        return OffsetsVerdict.NEXT
    if all(
        stored.get(r.topic_partition, 0) >= r.until_offset for r in ranges if r.length
    ):
        return OffsetsVerdict.ALREADY_COMMITTED
    disagreeing = ", ".join(
        f"{r} (Postgres stands at {stored.get(r.topic_partition, 0)})"
        for r in ranges
        if stored.get(r.topic_partition, 0) != r.from_offset
    )
    raise FatalError(
        "OFFSETS_DISAGREE",
        saw=f"The batch covers {disagreeing}.",
        why="Publishing it would lose or double the events in between.",
        fix="Restart the driver: it resumes from the offsets in Postgres.",
    )
