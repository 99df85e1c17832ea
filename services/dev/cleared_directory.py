"""The directory of a demo's or a chaos run's own servers and drivers, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from tallyweir.services.local.embedded.kafka import EmbeddedKafka
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.services.local.embedded.state_directory import (
    empty_directory,
    exclusive,
    state_directory,
)
from tallyweir.services.process.driver_process import stop_leftovers

_PIPELINE_FILES = {".yaml", ".py"}


@contextmanager
def cleared_directory(name: str) -> Iterator[Path]:
    """Hold a directory inside of the state directory, emptied, for the block.

    A run that was killed leaves drivers and servers at work in it; they are ended
    first: the drivers of its pipeline files, at most one folder below it, its Kafka in
    ``kafka`` and its Postgres servers in ``postgres*``.
    """
    directory = state_directory() / name
    with exclusive(directory):
        for file in chain(directory.glob("*"), directory.glob("*/*")):
            if file.suffix in _PIPELINE_FILES:
                stop_leftovers(file)
        EmbeddedKafka(directory / "kafka").stop()
        for former in directory.glob("postgres*"):
            EmbeddedPostgres(former).stop()
        empty_directory(directory)
        yield directory
