"""Prints ID and origin of each message in the topic of dead letters."""

from __future__ import annotations

from typing import cast

from confluent_kafka import Consumer, TopicPartition

from tallyweir.sinks.kafka_settings import client_config

_PARTITIONS = 4
_TIMEOUT_S = 30

consumer = Consumer(
    {
        **client_config("kafka:9092"),
        "group.id": "test",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
)
consumer.assign(
    [TopicPartition("flight-departures.dlq", part, 0) for part in range(_PARTITIONS)]
)
partitions_left = _PARTITIONS
while partitions_left:
    message = consumer.poll(_TIMEOUT_S)
    assert message is not None, "the broker is silent"
    if message.error():
        partitions_left -= 1
        continue
    sent = cast("list[tuple[str, bytes]]", message.headers())
    headers = {name: value.decode() for name, value in sent}
    origin = (
        f"{headers['__connect.errors.partition']}/{headers['__connect.errors.offset']}"
    )
    print(headers["ce_id"], origin)
