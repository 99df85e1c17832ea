"""How long Kafka will keep the records that a pipeline has not read yet.

Kafka deletes a segment when the newest record in it is older than ``retention.ms``, and
never a part of one. So a record lives at least until its own time is over, and the time
computed here is never too long. If ``retention.bytes`` limits a partition too, its log
spans the time from its first record to now, and an unread record is assumed to live for
as long.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from tallyweir.services.kafka.clients import admin_client, looking_consumer
from tallyweir.sinks.kafka_admin import BROKER_TIMEOUT_S, kafka_unreachable
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

#: How long the settings of topics are cached.
_SETTINGS_S = 60.0
_POLL_S = 0.5
#: Most timestamps that are cached; a record's timestamp never changes.
_TIMES_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The retention of a topic by its settings.

    Attributes:
        age: Age at which Kafka deletes records; None for never.
        has_size: The topic limits its partitions in bytes too.
    """

    age: timedelta | None
    has_size: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadPart:
    """The unread part of a partition.

    Attributes:
        next_offset: The first offset not read.
        position: Position of the partition in Kafka.
        unread_at: Timestamp of the first record not read; None without any.
        log_start_at: Timestamp of the first record in the log; None without any.
    """

    next_offset: int
    position: BrokerPosition
    unread_at: datetime | None
    log_start_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """The unread part of a pipeline's topics, or of one partition.

    Attributes:
        headroom_s: The shortest headroom of the partitions; infinite for never.
        oldest_at: Timestamp of the oldest record; None without any.
    """

    headroom_s: float
    oldest_at: datetime | None


NOTHING_UNREAD = Unread(headroom_s=math.inf, oldest_at=None)


def headroom_s(part: UnreadPart, retention: Retention, now: datetime) -> float:
    """Return the seconds until an unread record may be deleted; infinite for never."""
    if part.position.log_end_offset <= part.next_offset or part.unread_at is None:
        return math.inf
    if part.next_offset < part.position.log_start_offset:
        return 0.0
    left = [math.inf]
    if retention.age is not None:
        left.append((part.unread_at + retention.age - now).total_seconds())
    if _is_cut(part.position, retention) and part.log_start_at is not None:
        left.append((part.unread_at - part.log_start_at).total_seconds())
    return max(0.0, min(left))


class KafkaRetention:
    """Asks Kafka for retention, and caches the answers.

    Args:
        bootstrap: ``host:port``, several separated by commas.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._settings: dict[str, Retention] = {}
        self._settings_at = -_SETTINGS_S
        self._times: dict[tuple[TopicPartition, str, int], datetime | None] = {}

    def read_unread(
        self,
        next_offsets: Mapping[TopicPartition, int],
        broker: Mapping[TopicPartition, BrokerPosition],
        now: datetime,
    ) -> Unread:
        """Return the unread part of a pipeline's topics, over all partitions.

        A partition that the pipeline has never read counts from its start.

        Raises:
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        parts = self.read_parts(next_offsets, broker, now).values()
        times = (part.oldest_at for part in parts if part.oldest_at is not None)
        return Unread(
            headroom_s=min((part.headroom_s for part in parts), default=math.inf),
            oldest_at=min(times, default=None),
        )

    def read_parts(
        self,
        next_offsets: Mapping[TopicPartition, int],
        broker: Mapping[TopicPartition, BrokerPosition],
        now: datetime,
    ) -> dict[TopicPartition, Unread]:
        """Return the unread part of each partition that has one.

        Raises:
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        behind = {
            place: next_offsets.get(place, at.log_start_offset)
            for place, at in broker.items()
            if next_offsets.get(place, at.log_start_offset) < at.log_end_offset
        }
        if not behind:
            return {}
        try:
            self._read_settings({place.topic for place in broker})
            unread = self._read_times(behind, broker)
            starts = self._read_times(
                {
                    place: broker[place].log_start_offset
                    for place in behind
                    if _is_cut(broker[place], self._settings[place.topic])
                },
                broker,
            )
        except KafkaException as error:
            raise kafka_unreachable(
                self._bootstrap,
                f"answered {error.args[0].str()} when asked how long it keeps records",
            ) from error
        return {
            place: Unread(
                headroom_s=headroom_s(
                    UnreadPart(
                        next_offset=offset,
                        position=broker[place],
                        unread_at=unread[place],
                        log_start_at=starts.get(place),
                    ),
                    self._settings[place.topic],
                    now,
                ),
                oldest_at=unread[place],
            )
            for place, offset in behind.items()
        }

    def _read_settings(self, topics: Iterable[str]) -> None:
        if time.monotonic() - self._settings_at >= _SETTINGS_S:
            self._settings, self._settings_at = {}, time.monotonic()
        missing = [topic for topic in topics if topic not in self._settings]
        if not missing:
            return
        admin = admin_client(self._bootstrap)
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in missing]
        answers = admin.describe_configs(asked, request_timeout=BROKER_TIMEOUT_S)
        for resource, answer in answers.items():
            found = {key: one.value for key, one in answer.result().items()}
            self._settings[resource.name] = retention_of(found)

    def _read_times(
        self,
        offsets: Mapping[TopicPartition, int],
        broker: Mapping[TopicPartition, BrokerPosition],
    ) -> dict[TopicPartition, datetime | None]:
        """Return the timestamps of the first records at or behind some offsets."""
        wanted = {
            place: (broker[place].topic_id, max(at, broker[place].log_start_offset))
            for place, at in offsets.items()
        }
        missing = {
            place: at
            for place, (topic_id, at) in wanted.items()
            if (place, topic_id, at) not in self._times
        }
        if missing:
            if len(self._times) > _TIMES_MAX:
                self._times.clear()
                missing = {place: at for place, (_, at) in wanted.items()}
            for place, found in self._ask_times(missing).items():
                self._times[place, *wanted[place]] = found
        return {place: self._times[place, *key] for place, key in wanted.items()}

    def _ask_times(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, datetime | None]:
        # One record of each partition is enough.
        settings: dict[str, str | int] = {
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1,
            "fetch.message.max.bytes": 65_536,
        }
        consumer = looking_consumer(self._bootstrap, "tallyweir-alerts", settings)
        with closing(consumer):
            return _read_first(consumer, offsets)


def retention_of(settings: Mapping[str, str]) -> Retention:
    """Return the retention that a topic's settings give."""
    if "delete" not in settings.get("cleanup.policy", "delete"):
        return Retention(age=None, has_size=False)
    age_ms = int(settings.get("retention.ms", "-1"))
    return Retention(
        age=None if age_ms < 0 else timedelta(milliseconds=age_ms),
        has_size=int(settings.get("retention.bytes", "-1")) >= 0,
    )


def _read_first(
    consumer: Consumer, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, datetime | None]:
    """Read the timestamp of the first committed record from each offset on."""
    consumer.assign(
        [KafkaTopicPartition(at.topic, at.partition, o) for at, o in offsets.items()]
    )
    found: dict[TopicPartition, datetime | None] = {}
    give_up = time.monotonic() + BROKER_TIMEOUT_S
    while len(found) < len(offsets):
        if time.monotonic() > give_up:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001
        message = consumer.poll(_POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
            raise KafkaException(error)
        topic, partition = message.topic(), message.partition()
        assert topic is not None
        assert partition is not None
        place = TopicPartition(topic, partition)
        if place in found:
            continue
        found[place] = None
        if error is None:
            _kind, at_ms = message.timestamp()
            found[place] = datetime.fromtimestamp(at_ms / 1_000, UTC)
        consumer.pause([KafkaTopicPartition(topic, partition)])
    return found


def _is_cut(at: BrokerPosition, retention: Retention) -> bool:
    """Whether a log may be as large as it is allowed to be.

    A log that still has its first record has never been too large.
    """
    return retention.has_size and at.log_start_offset > 0
