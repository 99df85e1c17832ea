"""Number the places where events are read: one column, as cheap as the partition.

The rows of a batch go from the JVM to Python. A topic's name in each row would be one
more text to transfer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tallyweir.sinks.protocol.offsets import TopicPartition

#: The bits of a number that hold the partition, which Kafka counts in 32 bits.
_PARTITION_BITS = 32
_PARTITION_MASK = (1 << _PARTITION_BITS) - 1


@dataclass(frozen=True, slots=True)
class SourcePlaces:
    """Numbers the partitions of some topics in the order of (topic, partition).

    Attributes:
        topics: The topics, sorted by name.
    """

    topics: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", tuple(sorted(self.topics)))

    def column(self) -> Column:
        """Return the number of each record's place; null for any other topic.

        With a single topic the name is not compared. So the records of a batch run,
        whose topic is the run's own, need no name.
        """
        partition = F.col("partition").cast("bigint")
        if len(self.topics) == 1:
            return partition
        first_of_topic = F.create_map(
            *(
                literal
                for index, topic in enumerate(self.topics)
                for literal in (F.lit(topic), F.lit(_first_of(index)).cast("bigint"))
            )
        )
        return first_of_topic[F.col("topic")] + partition

    def topic_of(self, number: Column) -> Column:
        """Return the topic of a place's number, as tables store it."""
        if len(self.topics) == 1:
            return F.lit(self.topics[0])
        index = F.shiftright(number, _PARTITION_BITS).cast("int")
        return F.get(F.array(*map(F.lit, self.topics)), index)

    def number(self, place: TopicPartition) -> int:
        """Return the number of one place."""
        return _first_of(self.topics.index(place.topic)) + place.partition

    def place(self, number: int) -> TopicPartition:
        """Return the place of a number."""
        topic = self.topics[number >> _PARTITION_BITS]
        return TopicPartition(topic, number & _PARTITION_MASK)

    def split(self, numbers: npt.NDArray[np.int64]) -> tuple[pa.Array, pa.Array]:
        """Return topics and partitions, as tables store them."""
        topics = pa.array(self.topics).take(pa.array(numbers >> _PARTITION_BITS))
        return topics, pa.array((numbers & _PARTITION_MASK).astype(np.int32))


def _first_of(topic_index: int) -> int:
    return topic_index << _PARTITION_BITS
