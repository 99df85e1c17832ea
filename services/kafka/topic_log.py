"""Read topics in Kafka: where their logs begin and end, and the times of records.

It reads independently of the pipelines: it joins no consumer group and commits no
offsets.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from tallyweir.services.kafka.clients import admin_client, looking_consumer
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.protocol.offsets import OffsetRange, TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

#: Seconds after which a silent broker is reported.
BROKER_TIMEOUT_S = 10.0

#: Counting gives up after this many seconds without a record or an end.
SILENCE_MAX_S = 30.0

_RECORDS_FETCHED = 10_000
_NO_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
)

_T = TypeVar("_T")


class TopicLog:
    """The topics of a broker that a pipeline reads.

    If the pipeline reads no topics, no method asks the broker for positions.
    """

    def __init__(self, bootstrap: str, *topics: str) -> None:
        self._bootstrap = bootstrap
        self._topics = topics

    def read_positions(self) -> dict[TopicPartition, BrokerPosition]:
        """Return id, log start and log end of every partition.

        The end is the last stable offset. Records beyond it belong to a transaction
        that is still open, and cannot be read yet.

        Raises:
            ConfigurationError: ``TOPIC_MISSING``.
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        if not self._topics:
            return {}
        with self._asking() as (admin, topic_ids):
            starts = self._offsets(admin, list(topic_ids), OffsetSpec.earliest())
            # Read these before the stable ends; otherwise records that arrive in
            # between would count as held back.
            all_ends = self._offsets(
                admin,
                list(topic_ids),
                OffsetSpec.latest(),
                IsolationLevel.READ_UNCOMMITTED,
            )
            ends = self._offsets(admin, list(topic_ids), OffsetSpec.latest())
        return {
            place: BrokerPosition(
                topic_id=topic_id,
                log_start_offset=starts[place],
                log_end_offset=ends[place],
                held_back=max(0, all_ends[place] - ends[place]),
            )
            for place, topic_id in topic_ids.items()
        }

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the offset after the last record of every partition.

        Unlike the ends of ``read_positions``, it includes the records of transactions
        that are still open, which may become readable later.

        Raises:
            As ``read_positions`` does.
        """
        if not self._topics:
            return {}
        everything = IsolationLevel.READ_UNCOMMITTED
        with self._asking() as (admin, topic_ids):
            return self._offsets(
                admin, list(topic_ids), OffsetSpec.latest(), everything
            )

    def count_records(self, ranges: Sequence[OffsetRange]) -> tuple[int, ...]:
        """Count the committed records in each range, by reading all of them.

        Raises:
            RetryableError: ``KAFKA_UNREACHABLE``: nothing came for
                ``SILENCE_MAX_S`` seconds.
        """
        return tuple(self._count(part) for part in ranges)

    def _count(self, wanted: OffsetRange) -> int:
        if wanted.length == 0:
            return 0
        place = wanted.topic_partition
        start = KafkaTopicPartition(place.topic, place.partition, wanted.from_offset)
        consumer = looking_consumer(self._bootstrap, "tallyweir-recount")
        with closing(consumer):
            consumer.assign([start])
            return self._count_until(consumer, wanted.until_offset)

    def _count_until(self, consumer: Consumer, until_offset: int) -> int:
        counted = 0
        give_up = time.monotonic() + SILENCE_MAX_S
        while time.monotonic() < give_up:
            for message in consumer.consume(_RECORDS_FETCHED, timeout=1.0):
                give_up = time.monotonic() + SILENCE_MAX_S
                error = message.error()
                if error is not None:
                    # The log may end with a transaction's marker, which has an offset
                    # but is not a record. Only the end of the partition shows that no
                    # record follows.
                    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                        return counted
                    raise self._unreachable(f"answered {error.str()}")
                offset = message.offset()
                assert offset is not None, "a record that was read has an offset"
                if offset >= until_offset:
                    return counted
                counted += 1
                if offset == until_offset - 1:
                    return counted
        raise self._unreachable("sent nothing while records were counted")

    @contextmanager
    def _asking(self) -> Iterator[tuple[AdminClient, dict[TopicPartition, str]]]:
        """Yield the partitions with their topics' ids; translate Kafka's errors."""
        admin = admin_client(self._bootstrap)
        try:
            answers = admin.describe_topics(
                TopicCollection(list(self._topics)), request_timeout=BROKER_TIMEOUT_S
            )
            described = {
                topic: self._result(topic, one) for topic, one in answers.items()
            }
            yield (
                admin,
                {
                    TopicPartition(topic, partition.id): str(one.topic_id)
                    for topic, one in described.items()
                    for partition in one.partitions
                },
            )
        except KafkaException as error:
            raise self._unreachable(f"answered {error.args[0].str()}") from error

    def _offsets(
        self,
        admin: AdminClient,
        places: Sequence[TopicPartition],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, int]:
        answers = admin.list_offsets(
            {KafkaTopicPartition(one.topic, one.partition): spec for one in places},
            isolation_level=isolation,
            request_timeout=BROKER_TIMEOUT_S,
        )
        return {
            TopicPartition(one.topic, one.partition): self._result(
                one.topic, answer
            ).offset
            for one, answer in answers.items()
        }

    def _result(self, topic: str, answer: Future[_T]) -> _T:
        try:
            return answer.result()
        except KafkaException as error:
            if error.args[0].code() not in _NO_TOPIC:
                raise
            raise ConfigurationError(
                "TOPIC_MISSING",
                saw=f"The broker at {self._bootstrap} has no topic {topic}.",
                why="The pipeline's records are gone.",
                fix="Correct TALLYWEIR_KAFKA_BOOTSTRAP, or restore the topic.",
            ) from error

    def _unreachable(self, what: str) -> RetryableError:
        return RetryableError(
            "KAFKA_UNREACHABLE",
            saw=f"The broker at {self._bootstrap} {what}.",
            why="Only Kafka knows what it holds.",
            fix="Check that the broker runs and that TALLYWEIR_KAFKA_BOOTSTRAP names "
            "it.",
        )


def read_positions(
    bootstrap: str, topics: Iterable[str]
) -> tuple[dict[TopicPartition, BrokerPosition] | None, Sequence[TallyweirError]]:
    """Ask Kafka for the positions of topics, even if some topics are missing.

    Returns:
        The positions in the topics that exist, or None if Kafka does not answer; and
        the errors found.
    """
    wanted = sorted(topics)
    if not wanted:
        return {}, ()
    missing: list[TallyweirError] = []
    try:
        return _read_those_there(bootstrap, wanted, missing), missing
    except TallyweirError as error:
        return None, [*missing, error]


def _read_those_there(
    bootstrap: str, topics: list[str], missing: list[TallyweirError]
) -> dict[TopicPartition, BrokerPosition]:
    try:
        return TopicLog(bootstrap, *topics).read_positions()
    except ConfigurationError as error:
        if len(topics) == 1:
            missing.append(error)
            return {}
    half = len(topics) // 2
    return _read_those_there(bootstrap, topics[:half], missing) | _read_those_there(
        bootstrap, topics[half:], missing
    )


def positions_of(
    topics: Iterable[str], broker: Mapping[TopicPartition, BrokerPosition] | None
) -> Mapping[TopicPartition, BrokerPosition] | None:
    """Return the positions in some topics; None unless Kafka knows all of them.

    Without topics the result is empty, whether or not Kafka answers.
    """
    wanted = set(topics)
    if not wanted:
        return {}
    if broker is None or not wanted <= {place.topic for place in broker}:
        return None
    return {place: at for place, at in broker.items() if place.topic in wanted}


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
        admin = admin_client(self._bootstrap)
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
        with (
            self._translated(),
            closing(looking_consumer(self._bootstrap, "tallyweir-offsets")) as consumer,
        ):
            yield consumer

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
