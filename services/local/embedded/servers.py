"""The two embedded servers of the state directory."""

from __future__ import annotations

from tallyweir.services.local.embedded.kafka import EmbeddedKafka
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.services.local.embedded.state_directory import state_directory


def embedded_kafka() -> EmbeddedKafka:
    """Return the broker that commands use if no other one is configured."""
    return EmbeddedKafka(state_directory() / "kafka")


def embedded_postgres() -> EmbeddedPostgres:
    """Return the home database that commands use if no other one is configured."""
    return EmbeddedPostgres(state_directory() / "postgres")
