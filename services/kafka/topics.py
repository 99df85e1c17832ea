"""Find a topic or create it, with a clear error if neither works."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tallyweir.services.kafka.clients import admin_client
from tallyweir.sinks.kafka_admin import kafka_unreachable
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)

ANSWER_TIMEOUT_S = 10.0


def ensure_topic(bootstrap: str, name: str, *, partitions: int | None = None) -> int:
    """Make sure that a topic exists; return its number of partitions.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        name: The topic.
        partitions: The number that the topic must have, or gets if it is missing. None
            requires an existing topic.

    Raises:
        RetryableError: No broker answered within ``ANSWER_TIMEOUT_S``.
        ConfigurationError: The topic is missing and ``partitions`` is None, it has
            another number of partitions, or the broker refuses to create it.
    """
    admin = admin_client(bootstrap)
    found = _count_partitions(admin, bootstrap, name)
    if found is None and partitions is not None:
        _create(admin, bootstrap, name, partitions)
        return partitions
    if found is None:
        raise ConfigurationError(
            "TOPIC_MISSING",
            saw=f"Kafka at {bootstrap} has no topic {name!r}.",
            why="Events need a topic, and Tallyweir creates one only on request.",
            fix=f"Correct the name, or say how many partitions to create {name!r} "
            "with: --partitions 4.",
        )
    if partitions not in {None, found}:
        raise ConfigurationError(
            "TOPIC_PARTITIONS",
            saw=f"The topic {name!r} has {found} partitions, not {partitions}.",
            why="Adding partitions would move keys to other partitions.",
            fix=f"Use {found}, or another topic.",
        )
    return found


def create_if_missing(bootstrap: str, name: str, *, partitions: int) -> int:
    """Return a topic's number of partitions; create it with ``partitions`` if missing.

    Raises:
        TallyweirError: As ``ensure_topic``.
    """
    admin = admin_client(bootstrap)
    found = _count_partitions(admin, bootstrap, name)
    if found is None:
        return ensure_topic(bootstrap, name, partitions=partitions)
    return found


def _count_partitions(admin: AdminClient, bootstrap: str, name: str) -> int | None:
    # List all topics: asking for one by name would create it if the broker creates
    # topics on demand.
    try:
        metadata = admin.list_topics(timeout=ANSWER_TIMEOUT_S)
    except KafkaException as exc:
        raise _explain(exc.args[0], bootstrap, name) from exc
    topic = metadata.topics.get(name)
    if topic is None:
        return None
    if topic.error is not None:
        raise _explain(topic.error, bootstrap, name)
    return len(topic.partitions)


def _create(admin: AdminClient, bootstrap: str, name: str, partitions: int) -> None:
    try:
        # The broker's default decides the replication factor.
        future = admin.create_topics(
            [NewTopic(name, num_partitions=partitions, replication_factor=-1)],
            operation_timeout=ANSWER_TIMEOUT_S,
        )[name]
        future.result(timeout=ANSWER_TIMEOUT_S)
    except KafkaException as exc:
        error = exc.args[0]
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise _explain(error, bootstrap, name) from exc
        # Another client created it in between: check it like any existing topic.
        ensure_topic(bootstrap, name, partitions=partitions)


def _explain(error: KafkaError, bootstrap: str, name: str) -> TallyweirError:
    unreachable = {
        KafkaError._TRANSPORT,  # noqa: SLF001 (the client's public names)
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
    }
    if error.code() in unreachable:
        return kafka_unreachable(bootstrap, f"did not answer: {error.str()}")
    if error.retriable():
        return RetryableError(
            "KAFKA_BUSY",
            saw=f"Kafka at {bootstrap} answered {error.name()}: {error.str()}.",
            why=f"The topic {name!r} cannot be used now.",
            fix="Try again.",
        )
    return ConfigurationError(
        "TOPIC_REFUSED",
        saw=f"Kafka at {bootstrap} answered {error.name()}: {error.str()}.",
        why=f"The topic {name!r} cannot be used.",
        fix="Correct the topic's name or the user's rights.",
    )
