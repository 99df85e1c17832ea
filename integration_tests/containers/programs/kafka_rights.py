"""Tries what each user of Kafka may do, and prints the answers as JSON."""

from __future__ import annotations

import json
from concurrent.futures import Future

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tallyweir.sinks.kafka_settings import KAFKA_CONFIG_VARIABLE, client_config

TOPIC = "flight-departures"
DEAD = "flight-departures.dlq"
_TIMEOUT_S = 20


def may(user: str) -> dict[str, bool]:
    """Try everything as one user; writing to the topic only who must not."""
    settings = f"/run/secrets/kafka_{user}.properties"
    config = client_config("kafka:9092", {KAFKA_CONFIG_VARIABLE: settings})
    admin = AdminClient({**config})
    answers = {
        "read the topic": _reads(config),
        "write dead letters": _writes(config, DEAD),
        "make a topic": _succeeds(
            admin.create_topics(
                [NewTopic("mine", num_partitions=1, replication_factor=1)]
            )["mine"]
        ),
        "delete a topic": _succeeds(admin.delete_topics([DEAD])[DEAD]),
    }
    if user not in {"ingest", "producer"}:
        answers["write the topic"] = _writes(config, TOPIC)
    return answers


def _writes(config: dict[str, str], topic: str) -> bool:
    errors: list[object] = []
    producer = Producer({**config, "message.timeout.ms": 1_000 * _TIMEOUT_S})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(_TIMEOUT_S)
    # Not by ==, which an error of this library does not take with None.
    return [error is None for error in errors] == [True]


def _reads(config: dict[str, str]) -> bool:
    group = {"group.id": "tallyweir-test", "enable.partition.eof": True}
    consumer = Consumer({**config, **group})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    while True:
        # Other errors come too, as that the group is not this user's.
        message = consumer.poll(_TIMEOUT_S)
        assert message is not None, "the broker is silent"
        error = message.error()
        if error is None or error.name() in {
            "_PARTITION_EOF",
            "TOPIC_AUTHORIZATION_FAILED",
        }:
            consumer.close()
            return error is None or error.name() == "_PARTITION_EOF"


def _succeeds(future: Future[None]) -> bool:
    try:
        future.result(_TIMEOUT_S)
    except KafkaException:
        return False
    return True


# The relay makes it when there is a dead letter; here it need not have been.
administrator = AdminClient({**client_config("kafka:9092")})
wanted = NewTopic(DEAD, num_partitions=4, replication_factor=1)
_succeeds(administrator.create_topics([wanted])[DEAD])
users = ("ingest", "producer", "driver", "relay", "viewer", "alerts")
print(json.dumps({user: may(user) for user in users}))
