"""Comes to a Kafka whose certificate has expired, and prints what it was told."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tallyweir.sinks.kafka_settings import client_config

_TIMEOUT_S = 8

right = client_config("kafka:9092")


def _answer(config: dict[str, str]) -> str:
    heard: list[str] = []

    def hear(error: KafkaError) -> None:
        heard.append(error.str())

    settings: dict[str, Any] = {**config, "log_level": 0, "error_cb": hear}
    client = AdminClient(settings)
    try:
        client.list_topics(timeout=_TIMEOUT_S)
    except KafkaException:
        client.poll(0)
        return " ".join(heard)
    return "welcome"


unchecked = {"enable.ssl.certificate.verification": "false"}
print(
    json.dumps(
        {"checked": _answer(right), "unchecked": _answer({**right, **unchecked})}
    )
)
