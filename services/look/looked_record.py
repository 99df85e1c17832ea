"""A record of a topic as it was read, and what is known of its topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import compress

Headers = Sequence[tuple[str, object]] | None
"""The headers of a record, as the client returns them."""


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
class LookedBatch:
    """Records as columns; see ``LookedRecord``. Those of a partition are in order.

    Attributes:
        headers: All headers of each record.
    """

    partitions: Sequence[int]
    offsets: Sequence[int]
    timestamps_ms: Sequence[int | None]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def of(cls, records: Sequence[LookedRecord]) -> LookedBatch:
        """Return records as columns."""
        return cls(
            partitions=[one.partition for one in records],
            offsets=[one.offset for one in records],
            timestamps_ms=[one.timestamp_ms for one in records],
            keys=[one.key for one in records],
            values=[one.value for one in records],
            headers=[list(one.headers.items()) for one in records],
        )

    def until(self, offsets: Mapping[int, int]) -> LookedBatch:
        """Return the records below an offset of each partition."""
        places = zip(self.partitions, self.offsets, strict=True)
        kept = [offset < offsets[partition] for partition, offset in places]
        columns = {
            one.name: list(compress(getattr(self, one.name), kept))
            for one in fields(self)
        }
        return LookedBatch(**columns)

    def record(self, row: int) -> LookedRecord:
        """Return one of the records."""
        return LookedRecord(
            partition=self.partitions[row],
            offset=self.offsets[row],
            timestamp_ms=self.timestamps_ms[row],
            key=self.keys[row],
            value=self.values[row],
            headers={
                name: value
                for name, value in self.headers[row] or ()
                if isinstance(value, bytes)
            },
        )


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
