"""Finds the batch from which a pipeline can be computed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tallyweir.sinks.postgres.audit.replay.replay_committed import (
    RecordedBatch,
    RecordedPipeline,
)
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition
from tallyweir.spark_jobs.batch.kafka_ranges import ranges_of, topic_id_of


def find_beginning(
    recorded: RecordedPipeline,
    definition_hash: str,
    broker: Mapping[TopicPartition, BrokerPosition],
    *,
    since: int = 0,
) -> tuple[int, str]:
    """Find the last batch that cannot be computed again, and the reason.

    Args:
        recorded: The pipeline as the ledger has it.
        definition_hash: Definition hash of the pipeline's file.
        broker: Positions of the topics in Kafka.
        since: A batch that the user has named; only batches after it are computed.

    Returns:
        Its number and the reason; 0 and an empty reason if all batches can be computed.

    Raises:
        ConfigurationError: ``REPLAY_OTHER_VERSION``: the file is not the version in
            force.
    """
    obstacles = [
        (since, f"only batches after {since} were asked for" if since else ""),
        _begins_after(recorded, definition_hash),
        *(
            (batch.sequence, why)
            for batch in recorded.batches
            for why in _obstacles(batch, recorded.topic_ids, broker)
        ),
    ]
    return max(obstacles, key=lambda one: one[0])


def topics_read(recorded: RecordedPipeline) -> list[str]:
    """Return the topics that its batches have read, including runs over ranges."""
    return sorted(
        {
            one.topic_partition.topic
            for batch in recorded.batches
            for one in (batch.ranges if batch.run is None else ranges_of(batch.run))
        }
    )


def _begins_after(recorded: RecordedPipeline, definition_hash: str) -> tuple[int, str]:
    """Return the last batch of another version than the file's, and the reason."""
    after, why = 0, ""
    is_known = False
    for version in reversed(recorded.versions):
        if version.definition_hash != definition_hash:
            why = (
                f"they ran as version {version.version} of the pipeline or before it, "
                "which is not what the file says"
            )
            break
        is_known = True
        after = version.from_sequence
    if not is_known:
        raise ConfigurationError(
            "REPLAY_OTHER_VERSION",
            saw="The file is not the version of the pipeline in force.",
            why="The replay would produce other rows, and each would look like an "
            "error.",
            fix="Name the file that the driver runs; tallyweir versions PIPELINE "
            "shows the changes.",
        )
    return (after, why) if why else (0, "")


def _obstacles(
    batch: RecordedBatch,
    topic_ids: Mapping[str, str],
    broker: Mapping[TopicPartition, BrokerPosition],
) -> Iterator[str]:
    ranges: Sequence[OffsetRange] = batch.ranges
    if batch.run is not None:
        ranges = ranges_of(batch.run)
        if not ranges:
            yield f"batch {batch.sequence} is the run {batch.run.name} over files"
            return
        topic = ranges[0].topic_partition.topic
        topic_ids = {topic: topic_id_of(batch.run)}
    for one in ranges:
        if not one.length:
            continue
        place = one.topic_partition
        held = broker.get(place)
        if held is None or held.topic_id != topic_ids.get(place.topic):
            yield f"Kafka has the topic {place.topic} no more that they have read"
        elif held.log_start_offset > one.from_offset:
            yield f"retention has deleted records of {one} since"
