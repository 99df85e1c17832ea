"""Find when records were appended to topics, and how long Kafka keeps them.

It reads independently of the pipelines: it joins no consumer group and commits no
offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tallyweir.services.kafka.topic_log import BROKER_TIMEOUT_S
from tallyweir.sinks.kafka_settings import client_config
from tallyweir.sinks.protocol.errors import RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition

_QUIET = {"log_level": 0}


class TopicTimes:
    """The times of records in topics.

    Args:
        bootstrap: The broker's address.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def offsets_at(
        self, moment: datetime, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Find the first record of each partition that is not older than a moment.

        Args:
            moment: A time with a time zone; compared with the records' timestamps.
            ends: The ends of the partitions to search; the result for a partition
                without a record that new.

        Raises:
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        milliseconds = round(moment.timestamp() * 1000)
        with self._consumer() as consumer:
            found = consumer.offsets_for_times(
                [
                    KafkaTopicPartition(place.topic, place.partition, milliseconds)
                    for place in ends
                ],
                timeout=BROKER_TIMEOUT_S,
            )
        offsets = {
            TopicPartition(one.topic, one.partition): one.offset for one in found
        }
        # A negative offset means the end.
        return {
            place: offsets[place] if 0 <= offsets[place] < end else end
            for place, end in ends.items()
        }

    def times_at(
        self, places: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, datetime]:
        """Read when the records at or after some offsets were appended.

        Args:
            places: By partition, an offset before the end of its log.

        Returns:
            The times of the records that arrived within the timeout; other partitions
            are left out.

        Raises:
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        times: dict[TopicPartition, datetime] = {}
        with self._consumer() as consumer:
            for place, offset in places.items():
                consumer.assign(
                    [KafkaTopicPartition(place.topic, place.partition, offset)]
                )
                message = consumer.poll(BROKER_TIMEOUT_S)
                if message is None or message.error() is not None:
                    continue
                kind, milliseconds = message.timestamp()
                if kind != TIMESTAMP_NOT_AVAILABLE:
                    times[place] = datetime.fromtimestamp(milliseconds / 1000, tz=UTC)
        return times

    def retention_of(self, topics: tuple[str, ...]) -> dict[str, timedelta | None]:
        """Read how long each topic keeps records; None means without a limit.

        A limit on a topic's size is ignored.

        Raises:
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        admin = AdminClient({**client_config(self._bootstrap), **_QUIET})
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        with self._translated():
            answers = admin.describe_configs(
                resources, request_timeout=BROKER_TIMEOUT_S
            )
            kept = {
                resource.name: int(answer.result()["retention.ms"].value)
                for resource, answer in answers.items()
            }
        return {
            topic: None if milliseconds < 0 else timedelta(milliseconds=milliseconds)
            for topic, milliseconds in kept.items()
        }

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                **client_config(self._bootstrap),
                "group.id": "tallyweir-offsets",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                **_QUIET,
            }
        )
        try:
            with self._translated():
                yield consumer
        finally:
            consumer.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise RetryableError(
                "KAFKA_UNREACHABLE",
                saw=f"The broker at {self._bootstrap} answered {error.args[0].str()}.",
                why="Only Kafka knows what it holds.",
                fix="Check that the broker runs and that TALLYWEIR_KAFKA_BOOTSTRAP "
                "names it.",
            ) from error
