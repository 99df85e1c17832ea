"""Read from Spark's own log which offsets a batch covers.

Spark writes ``offsets/N`` in the checkpoint directory before batch N runs. Only this
file shows the planned ranges of a batch; Spark does not pass them to ``foreachBatch``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition


def read_planned_ranges(
    checkpoint: Path, batch_id: int, starts: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """Return the half-open ranges that a batch covers, ordered by partition.

    Args:
        checkpoint: The query's checkpoint directory.
        batch_id: Spark's number of the batch.
        starts: The offsets at which the query begins; the first batch starts there.

    Raises:
        RetryableError: ``CHECKPOINT_GONE``: the directory was deleted while the driver
            ran. The next start makes another.
    """
    until = _read_offsets(checkpoint, batch_id)
    begin = dict(starts) if batch_id == 0 else _read_offsets(checkpoint, batch_id - 1)
    return [
        OffsetRange(
            topic_partition=topic_partition,
            # A partition added since then begins at 0.
            from_offset=begin.get(topic_partition, 0),
            until_offset=until_offset,
        )
        for topic_partition, until_offset in sorted(until.items())
    ]


def _read_offsets(checkpoint: Path, batch_id: int) -> dict[TopicPartition, int]:
    path = checkpoint / "offsets" / str(batch_id)
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError as error:
        raise RetryableError(
            "CHECKPOINT_GONE",
            saw=f"Spark's checkpoint has no entry for batch {batch_id}.",
            why="The directory was deleted while the driver ran.",
            fix="Nothing to do: the next start creates a new one from Postgres.",
        ) from error
    # A version line, a metadata line, then one line per source.
    sources: dict[str, dict[str, int]] = json.loads(lines[2])
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in sources.items()
        for partition, offset in partitions.items()
    }
