"""Maps failures of Kafka to our errors: one table for the whole relay."""

from __future__ import annotations

from confluent_kafka import KafkaError

from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)

_FENCED = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - its public name
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
_REFUSED = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD})
_FORBIDDEN = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def kafka_failure(error: KafkaError, doing: str) -> TallyweirError:
    """Turn an error of the client into one of ours, with its fix.

    Args:
        error: The client's error.
        doing: The attempted work, as in "sending messages".
    """
    saw = f"Kafka answered {error.name()} while {doing}: {error.str()}."
    if error.code() in _FENCED:
        return RetryableError(
            "RELAY_FENCED",
            saw=saw,
            why="Another relay of this installation has started to send.",
            fix="Nothing to do: the relay that holds the home's lock goes on. If this "
            "lasts, a copy of the home database uses the same broker: see "
            "docs/relay.md.",
        )
    if error.code() in _REFUSED:
        return ConfigurationError(
            "RELAY_MESSAGE_REFUSED",
            saw=saw,
            why="The relay sends messages in order, so all later ones wait.",
            fix="Raise max.message.bytes of the topic.",
        )
    if error.code() in _FORBIDDEN:
        return ConfigurationError(
            "RELAY_FORBIDDEN",
            saw=saw,
            why="The relay's user lacks a right.",
            fix="Grant it; docs/relay.md lists what the relay needs.",
        )
    return RetryableError(
        "RELAY_KAFKA_UNAVAILABLE",
        saw=saw,
        why="Unsent messages wait in the home database.",
        fix="Check that the broker runs and that TALLYWEIR_KAFKA_BOOTSTRAP names it.",
    )
