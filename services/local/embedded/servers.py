"""The two embedded servers of the state directory."""

from __future__ import annotations

from services.local.embedded.kafka import EmbeddedKafka
from services.local.embedded.postgres import EmbeddedPostgres
from services.local.embedded.state_directory import state_directory


def embedded_kafka() -> EmbeddedKafka:
    """The broker that commands use when no outside one is named."""
    return EmbeddedKafka(state_directory() / "kafka")


def embedded_postgres() -> EmbeddedPostgres:
    """The home database that commands use when no outside one is named."""
    return EmbeddedPostgres(state_directory() / "postgres")
