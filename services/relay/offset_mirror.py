"""Shows Kafka's tools how far pipelines are, in consumer groups without members.

The home database stays the only authority: the relay writes offsets to Kafka and never
reads them. If something else moves them, the relay overwrites them within
``REFRESH_S``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from tallyweir.services.kafka.clients import admin_client
from tallyweir.services.kafka.topics import ANSWER_TIMEOUT_S
from tallyweir.services.relay.kafka_failures import kafka_failure
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition

#: Seconds until unchanged offsets are written once more. Reading them from Kafka
#: instead is no option: librdkafka's admin client crashes the process when the group's
#: coordinator has just moved (confluentinc/confluent-kafka-javascript#374).
REFRESH_S = 60.0

#: Errors of a broker that is still loading a group, as at the group's first use.
_PASSING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
_PAUSE_S = 0.2

_Offsets = Mapping[TopicPartition, int]


def advisory_group(pipeline: str) -> str:
    """Name the consumer group that shows a pipeline's offsets."""
    return f"tallyweir.{pipeline}"


class OffsetMirror:
    """Keeps advisory groups at the offsets of the home database, forward and back.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self, bootstrap: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._admin = admin_client(bootstrap)
        self._clock = clock
        self._acknowledged: dict[str, dict[TopicPartition, int]] = {}
        self._refreshed_at: dict[str, float] = {}

    def drift(self, pipeline: str, committed: _Offsets) -> int:
        """Count the records by which a group is off, as far as the relay knows."""
        return drift(self._acknowledged.get(pipeline, {}), committed)

    def show(self, pipeline: str, committed: _Offsets) -> None:
        """Write the offsets that have changed, and now and then all of them.

        Raises:
            TallyweirError: ``OFFSET_MIRROR_REFUSED``, or as ``kafka_failure``.

        Crash:
            Some partitions may be written and others not. The next round writes all.
        """
        now = self._clock()
        known = self._acknowledged.get(pipeline, {})
        if now - self._refreshed_at.get(pipeline, -REFRESH_S) >= REFRESH_S:
            known = {}
        changed = {tp: at for tp, at in committed.items() if known.get(tp) != at}
        if not changed:
            return
        # A failed write may have changed some partitions.
        self._acknowledged.pop(pipeline, None)
        self._write(advisory_group(pipeline), changed)
        self._acknowledged[pipeline] = dict(committed)
        if not known:
            self._refreshed_at[pipeline] = now

    def _write(self, group: str, offsets: _Offsets) -> None:
        asked = ConsumerGroupTopicPartitions(
            group,
            [
                KafkaTopicPartition(where.topic, where.partition, offset)
                for where, offset in offsets.items()
            ],
        )
        try:
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

    def _alter(
        self, asked: ConsumerGroupTopicPartitions
    ) -> ConsumerGroupTopicPartitions:
        futures = self._admin.alter_consumer_group_offsets(
            [asked], request_timeout=ANSWER_TIMEOUT_S
        )
        answer: ConsumerGroupTopicPartitions = futures[asked.group_id].result(
            timeout=ANSWER_TIMEOUT_S
        )
        for one in answer.topic_partitions or ():
            # Kafka reports a moving coordinator for each partition.
            if one.error is not None and one.error.code() in _PASSING:
                raise KafkaException(one.error)
        return answer


def drift(shown: _Offsets, committed: _Offsets) -> int:
    """Count the records by which a group is off, either way, over all partitions.

    A partition that is not shown counts from its beginning.
    """
    return sum(abs(offset - shown.get(tp, 0)) for tp, offset in committed.items())


def _insist(
    ask: Callable[[], ConsumerGroupTopicPartitions],
) -> ConsumerGroupTopicPartitions:
    """Ask again while the broker is still loading the group."""

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
        why="Kafka's tools show old offsets; the pipeline itself is not affected.",
        fix="Keep consumers out of the group: only the relay uses it. A deleted topic "
        "has no offsets to show.",
    )
