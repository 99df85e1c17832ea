"""What callers learn of a broker that is not there, and of topics that are not."""

from __future__ import annotations

import pytest

from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.protocol.errors import RetryableError

_NOWHERE = "127.0.0.1:1"


def test_without_topics_no_broker_is_asked() -> None:
    """Pipelines that read files only work without Kafka."""
    nothing = KafkaAdmin(_NOWHERE)
    assert nothing.read_positions() == {}
    assert nothing.read_there() == ({}, ())


def test_a_silent_broker_has_no_positions_and_one_error() -> None:
    """Pages show it; a driver waits for the broker."""
    admin = KafkaAdmin(_NOWHERE, "orders", "returns", timeout_s=0.3)
    positions, (error,) = admin.read_there()
    assert positions is None
    assert error.code == "KAFKA_UNREACHABLE"
    with pytest.raises(RetryableError, match=f"{_NOWHERE} did not answer"):
        admin.read_positions()
