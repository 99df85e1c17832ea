"""Clients of Kafka with the user's settings, which write no log lines of their own."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tallyweir.sinks.kafka_settings import client_config

# Without it, the client writes log lines of its own about a silent broker.
SILENT_LOG = logging.getLogger("tallyweir.kafka.silent")
SILENT_LOG.addHandler(logging.NullHandler())
SILENT_LOG.propagate = False


def admin_client(bootstrap: str) -> AdminClient:
    """Return an admin client of a broker, with the user's settings."""
    return AdminClient({**client_config(bootstrap)}, logger=SILENT_LOG)


def producer_settings(
    bootstrap: str, *, linger_ms: int
) -> dict[str, str | int | float | bool]:
    """Return the settings of our producers: idempotent, and acknowledged by all.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        linger_ms: How long messages wait for others to share a request to the broker.
    """
    return {
        **client_config(bootstrap),
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": linger_ms,
        "batch.size": 262_144,
        "compression.type": "lz4",
        "partitioner": "consistent_random",
    }


def looking_consumer(
    bootstrap: str, group: str, settings: Mapping[str, str | int] | None = None
) -> Consumer:
    """Return a consumer of committed records that joins no group and commits nothing.

    It tells the end of a partition, and an offset that is gone is an error.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        group: Name of its group, which rights of users refer to.
        settings: Settings of the client that differ.
    """
    return Consumer(
        {
            **client_config(bootstrap),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            **(settings or {}),
        },
        logger=SILENT_LOG,
    )
