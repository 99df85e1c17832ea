"""The broker and the Postgres of one process that runs tests.

Tests may run in several processes, called lanes. Each has servers of its own, because
many tests look at what a whole server holds: its prepared transactions, its roles.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tallyweir.services.local.embedded.kafka import EmbeddedKafka
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.services.local.embedded.state_directory import (
    STATE_DIRECTORY_VARIABLE,
    share_fetched,
    state_directory,
)
from tallyweir.services.process.endpoints import Endpoints, child_environment
from tallyweir.sinks.settings import FILE_SUFFIX, HOME_DSN_VARIABLE


@contextmanager
def lane_servers(lane: str) -> Iterator[Endpoints]:
    """Start both in a state directory of their own, and take it away at the end.

    The environment names all three meanwhile, so that what a test starts finds them.
    ``tallyweir test`` stops the servers of a lane that was killed.

    Args:
        lane: What no other process of the same run is called.
    """
    directory = state_directory() / f"lane-{lane}-{uuid.uuid4().hex[:8]}"
    directory.mkdir()
    share_fetched(directory)
    kafka = EmbeddedKafka(directory / "kafka")
    postgres = EmbeddedPostgres(directory / "postgres")
    try:
        kafka.start()
        postgres.start()
        endpoints = Endpoints(kafka_bootstrap=kafka.bootstrap, home_dsn=postgres.dsn)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(STATE_DIRECTORY_VARIABLE, str(directory))
            patch.delenv(HOME_DSN_VARIABLE + FILE_SUFFIX, raising=False)
            for name, value in child_environment(endpoints).items():
                patch.setenv(name, value)
            yield endpoints
    finally:
        kafka.stop()
        postgres.stop()
        shutil.rmtree(directory)
