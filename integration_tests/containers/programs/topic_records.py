"""Prints each committed record of a topic, and where each of its partitions ends."""

from __future__ import annotations

import sys
from typing import cast

from confluent_kafka import Consumer, TopicPartition

from tallyweir.sinks.kafka_settings import client_config

_TIMEOUT_S = 30

(topic,) = sys.argv[1:]
consumer = Consumer(
    {
        **client_config("kafka:9092"),
        "group.id": "test",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
)
partitions = consumer.list_topics(topic, _TIMEOUT_S).topics[topic].partitions
consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
ends: dict[int, int] = {}
while len(ends) < len(partitions):
    message = consumer.poll(_TIMEOUT_S)
    assert message is not None, "the broker is silent"
    place = cast("tuple[int, int]", (message.partition(), message.offset()))
    if message.error():
        ends.update([place])
    else:
        print("record", *place, (message.value() or b"").hex())
for partition, offset in ends.items():
    print("end", partition, offset, "")
