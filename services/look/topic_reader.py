"""Read a topic, or the start, middle and end of each partition, and leave no trace.

The consumer joins no group and commits nothing. It sees committed records only, as the
drivers do.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import cast

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tallyweir.services.kafka.clients import admin_client, looking_consumer
from tallyweir.services.kafka.topic_log import SILENCE_MAX_S
from tallyweir.services.look.looked_record import (
    Headers,
    LookedBatch,
    ReadExtent,
    TopicFacts,
)
from tallyweir.sinks.kafka_admin import (
    BROKER_TIMEOUT_S,
    KafkaAdmin,
    kafka_unreachable,
)
from tallyweir.sinks.protocol.errors import ConfigurationError

#: How many records are fetched together, and about how many bytes of values.
_FETCHED_FIRST, _FETCHED, _FETCHED_BYTES = 64, 10_000, 1 << 25
_GROUP = "tallyweir-look"
_SETTINGS = (
    "cleanup.policy",
    "compression.type",
    "message.timestamp.type",
    "retention.bytes",
    "retention.ms",
)
#: By partition, the offsets to read.
Section = Mapping[int, tuple[int, int]]


def plan_sections(
    offsets: Mapping[int, tuple[int, int]], records: int | None
) -> list[Section]:
    """Choose what to read: the whole topic, or three sections of each partition.

    Args:
        offsets: By partition, the first offset and the one after the last.
        records: How many to read about; None for all.

    Returns:
        The sections in the order in which they are read, which is that of offsets.
    """
    filled = {one: span for one, span in offsets.items() if span[0] < span[1]}
    if records is None or _offsets_in(filled) <= records:
        return [filled] if filled else []
    length = max(1, records // (3 * len(filled)))
    rounds: list[dict[int, tuple[int, int]]] = [{}, {}, {}]
    for partition, (start, until) in filled.items():
        if until - start <= 3 * length:
            rounds[0][partition] = (start, until)
            continue
        middle = start + (until - start - length) // 2
        for index, begin in enumerate((start, middle, until - length)):
            rounds[index][partition] = (begin, begin + length)
    return [one for one in rounds if one]


def _offsets_in(section: Section) -> int:
    return sum(until - start for start, until in section.values())


class TopicReader:
    """Reads one topic.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        topic: The topic.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic

    def find_facts(self) -> TopicFacts:
        """Ask Kafka for the topic's offsets and settings.

        Raises:
            ConfigurationError: ``TOPIC_MISSING``.
            RetryableError: ``KAFKA_UNREACHABLE``.
        """
        admin = admin_client(self._bootstrap)
        self._require_topic(admin)
        positions = KafkaAdmin(self._bootstrap, self._topic).read_positions()
        return TopicFacts(
            topic=self._topic,
            offsets={
                place.partition: (at.log_start_offset, at.log_end_offset)
                for place, at in sorted(positions.items())
            },
            settings=self._read_settings(admin),
        )

    def read(
        self, facts: TopicFacts, records: int | None, extent: ReadExtent
    ) -> Iterator[LookedBatch]:
        """Yield records of the topic; those of a partition in the order of offsets.

        Args:
            facts: As ``find_facts`` returns them.
            records: How many to read about; None for all.
            extent: Gets what was read.

        Raises:
            RetryableError: ``KAFKA_UNREACHABLE``: nothing came for
                ``SILENCE_MAX_S`` seconds.
        """
        sections = plan_sections(facts.offsets, records)
        planned = sum(map(_offsets_in, sections))
        extent.is_whole = planned == facts.offset_count
        consumer = looking_consumer(self._bootstrap, _GROUP)
        with closing(consumer):
            for section in sections:
                for batch in self._read_section(consumer, section):
                    extent.records += len(batch)
                    yield batch
                extent.offsets += _offsets_in(section)

    def _read_section(
        self, consumer: Consumer, section: Section
    ) -> Iterator[LookedBatch]:
        consumer.assign(
            [
                KafkaTopicPartition(self._topic, partition, start)
                for partition, (start, _) in section.items()
            ]
        )
        untils = {partition: until for partition, (_, until) in section.items()}
        unread = set(section)
        wished = _FETCHED_FIRST
        give_up = time.monotonic() + SILENCE_MAX_S
        while unread:
            if time.monotonic() > give_up:
                raise kafka_unreachable(
                    self._bootstrap, "sent nothing while records were read"
                )
            messages = consumer.consume(wished, timeout=0.5)
            if not messages:
                continue
            give_up = time.monotonic() + SILENCE_MAX_S
            ended = [one for one in messages if one.error() and self._is_end(one)]
            batch = _batch_of(
                [one for one in messages if not one.error()] if ended else messages
            )
            last = dict(zip(batch.partitions, batch.offsets, strict=True))
            passed = {one for one, at in last.items() if at >= untils[one] - 1}
            if passed:
                batch = batch.until(untils)
            unread -= {one.partition() for one in ended} | passed
            if len(batch):
                size = sum(map(len, filter(None, batch.values))) // len(batch)
                wished = max(1, min(_FETCHED, _FETCHED_BYTES // max(1, size)))
                yield batch

    def _is_end(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - public name
            return True
        raise kafka_unreachable(self._bootstrap, f"answered {error.str()}")

    def _require_topic(self, admin: AdminClient) -> None:
        # List all topics: asking for one by name could create it.
        try:
            topics = admin.list_topics(timeout=BROKER_TIMEOUT_S).topics
        except KafkaException as error:
            raise kafka_unreachable(
                self._bootstrap, f"answered {error.args[0].str()}"
            ) from error
        if self._topic in topics:
            return
        own = sorted(name for name in topics if not name.startswith("__"))
        near = difflib.get_close_matches(self._topic, own, n=1)
        raise ConfigurationError(
            "TOPIC_MISSING",
            saw=f"Kafka at {self._bootstrap} has no topic {self._topic!r}; it has "
            f"{', '.join(own[:10]) or 'none'}.",
            why="There is nothing to look at.",
            fix=f"Write --topic {near[0]}." if near else "Correct --topic or --kafka.",
        )

    def _read_settings(self, admin: AdminClient) -> dict[str, str]:
        """Read the topic's settings; none without the right to do so."""
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        try:
            answers = admin.describe_configs(
                [resource], request_timeout=BROKER_TIMEOUT_S
            )
            found = answers[resource].result()
        except KafkaException:
            return {}
        return {name: found[name].value for name in _SETTINGS if name in found}


def _batch_of(messages: list[Message]) -> LookedBatch:
    # One pair at a time: a million of them would keep the garbage collector busy.
    times = (one.timestamp() for one in messages)
    return LookedBatch(
        # A record has a place; no deserializer is set, so keys and values are bytes.
        partitions=cast(list[int], [one.partition() for one in messages]),
        offsets=cast(list[int], [one.offset() for one in messages]),
        timestamps_ms=[
            None if kind == TIMESTAMP_NOT_AVAILABLE else at for kind, at in times
        ],
        keys=cast(list[bytes | None], [one.key() for one in messages]),
        values=cast(list[bytes | None], [one.value() for one in messages]),
        headers=cast(list[Headers], [one.headers() for one in messages]),
    )
