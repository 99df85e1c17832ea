"""The connection of a command to the home database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow


@contextmanager
def connected_home(command: str) -> Iterator[Connection[TupleRow]]:
    """Connect to the home database; commit when the block ends, roll back if it fails.

    Args:
        command: Name of the command, which Postgres shows.

    Raises:
        ConfigurationError: As ``find_home_dsn`` and ``connect``.
        RetryableError: The server cannot be reached.
    """
    from tallyweir.services.process.endpoints import find_home_dsn
    from tallyweir.sinks.postgres.server.connection import connect

    with connect(find_home_dsn(), application_name=f"tallyweir {command}") as home:
        yield home
