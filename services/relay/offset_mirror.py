"""Shows Kafka's tools how far pipelines are, in consumer groups that nobody joins.

The home database stays the only authority: nothing of ours ever reads these offsets.
Whatever else has moved them is put right in the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from services.ingest.topics import ANSWER_TIMEOUT_S, SILENT_LOG
from services.relay.kafka_failures import kafka_failure
from sinks.kafka_settings import client_config
from sinks.protocol.errors import RetryableError
from sinks.protocol.offsets import TopicPartition

#: What a broker answers while it takes a group over, such as at the group's first use.
_PASSING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
_PAUSE_S = 0.2

_Answer = ConsumerGroupTopicPartitions


def advisory_group(pipeline: str) -> str:
    """Name the consumer group that shows a pipeline's offsets."""
    return f"tallyweir.{pipeline}"


class OffsetMirror:
    """Keeps advisory groups at what the home database says, forward and back."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({**client_config(bootstrap)}, logger=SILENT_LOG)

    def read_group(self, pipeline: str) -> dict[TopicPartition, int]:
        """Return what a pipeline's group shows now; nothing if there is no group.

        Raises:
            TallyweirError: As ``kafka_failure``.
        """
        group = advisory_group(pipeline)
        asked = ConsumerGroupTopicPartitions(group)
        try:
            found = _insist(lambda: self._list(asked)).topic_partitions
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return {}
            raise kafka_failure(error.args[0], f"reading group {group}") from error
        return {
            TopicPartition(one.topic, one.partition): one.offset
            for one in found or ()
            if one.offset >= 0
        }

    def move_group(self, pipeline: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Show these offsets.

        Raises:
            TallyweirError: ``OFFSET_MIRROR_REFUSED``, or as ``kafka_failure``.

        Crash:
            Some partitions may be moved and others not; the next round moves the rest.
        """
        group = advisory_group(pipeline)
        wanted = [
            KafkaTopicPartition(where.topic, where.partition, offset)
            for where, offset in offsets.items()
        ]
        try:
            asked = ConsumerGroupTopicPartitions(group, wanted)
            answered = _insist(lambda: self._alter(asked)).topic_partitions
        except KafkaException as error:
            if error.args[0].code() in (
                KafkaError.UNKNOWN_MEMBER_ID,
                KafkaError.NON_EMPTY_GROUP,
            ):
                raise _refused(group, "it has members") from error
            raise kafka_failure(error.args[0], f"moving group {group}") from error
        refused = {
            f"{one.topic}-{one.partition}: {one.error.str()}"
            for one in answered or ()
            if one.error is not None
        }
        if refused:
            raise _refused(group, "; ".join(sorted(refused)))

    def _list(self, asked: ConsumerGroupTopicPartitions) -> _Answer:
        futures = self._admin.list_consumer_group_offsets(
            [asked], request_timeout=ANSWER_TIMEOUT_S
        )
        answer: _Answer = futures[asked.group_id].result(timeout=ANSWER_TIMEOUT_S)
        return answer

    def _alter(self, asked: ConsumerGroupTopicPartitions) -> _Answer:
        futures = self._admin.alter_consumer_group_offsets(
            [asked], request_timeout=ANSWER_TIMEOUT_S
        )
        answer: _Answer = futures[asked.group_id].result(timeout=ANSWER_TIMEOUT_S)
        return answer


def drift(
    shown: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> int:
    """Count the records by which a group is off, either way, over all partitions.

    A partition that the group does not show counts from its beginning.
    """
    return sum(abs(offset - shown.get(tp, 0)) for tp, offset in committed.items())


def _insist(ask: Callable[[], _Answer]) -> _Answer:
    """Ask again while the broker is still finding out who keeps the group."""

    def is_passing(error: BaseException) -> bool:
        return isinstance(error, KafkaException) and error.args[0].code() in _PASSING

    retrying = Retrying(
        retry=retry_if_exception(is_passing),
        wait=wait_fixed(_PAUSE_S),
        stop=stop_after_delay(ANSWER_TIMEOUT_S),
        reraise=True,
    )
    return retrying(ask)


def _refused(group: str, reason: str) -> RetryableError:
    return RetryableError(
        "OFFSET_MIRROR_REFUSED",
        saw=f"Kafka does not move the consumer group {group}: {reason}.",
        why="Kafka's tools show old offsets; the pipeline itself is not concerned.",
        fix="Let no consumer join the group: it is the relay's.",
    )
