"""Comes to Kafka with the right settings and with one of them wrong, as JSON."""

from __future__ import annotations

import json
import socket

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tallyweir.sinks.kafka_settings import client_config

_TIMEOUT_S = 8
_OTHER_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"

right = client_config("kafka:9092")
address = socket.gethostbyname("kafka")
without_login = {k: v for k, v in right.items() if not k.startswith("sasl.")}
cases = {
    "the right settings": right,
    "no encryption": right | {"security.protocol": "SASL_PLAINTEXT"},
    "no login": without_login | {"security.protocol": "SSL"},
    "a wrong password": right | {"sasl.password": "wrong"},
    "another authority": right | {"ssl.ca.location": _OTHER_AUTHORITIES},
    "another name": right | {"bootstrap.servers": f"{address}:9092"},
    "a weaker mechanism": right | {"sasl.mechanism": "PLAIN"},
}


def _enters(config: dict[str, str]) -> bool:
    try:
        AdminClient({**config, "log_level": 0}).list_topics(timeout=_TIMEOUT_S)
    except KafkaException:
        return False
    return True


print(json.dumps({name: _enters(config) for name, config in cases.items()}))
