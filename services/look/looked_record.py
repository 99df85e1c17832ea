"""A record of a topic as it was read, and what is known of its topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedRecord:
    """A record.

    Attributes:
        timestamp_ms: Kafka's timestamp in milliseconds since 1970; None if it has none.
        value: None is a tombstone.
        headers: The last value of each header.
    """

    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """What Kafka says of a topic.

    Attributes:
        topic: Its name.
        offsets: By partition, the first offset and the one after the last.
        settings: The topic's configuration.
    """

    topic: str
    offsets: Mapping[int, tuple[int, int]]
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def offset_count(self) -> int:
        """The number of offsets, which is at least the number of records."""
        return sum(until - start for start, until in self.offsets.values())


@dataclass(slots=True, kw_only=True)
class ReadExtent:
    """How much of the topic was read.

    Attributes:
        is_whole: Whether all of it was read, so that figures are no estimates.
        records: The records that were read.
        offsets: The offsets that were passed; some have no record.
    """

    is_whole: bool
    records: int = 0
    offsets: int = 0

    @property
    def gaps(self) -> int:
        """Offsets without a record: ends of transactions, aborted or compacted."""
        return self.offsets - self.records
