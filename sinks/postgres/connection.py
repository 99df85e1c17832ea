"""Connections to the home database."""

from __future__ import annotations

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from sinks.postgres.sqlstate import translated

#: Seconds until an unreachable server is reported.
CONNECT_TIMEOUT_S = 10


def connect(dsn: str, *, application_name: str) -> Connection[TupleRow]:
    """Open a connection whose transactions are begun and ended explicitly.

    An empty ``dsn`` means libpq's defaults, that is, the PG* variables.

    Raises:
        ConfigurationError: The login was refused or the database does not exist.
        RetryableError: The server cannot be reached.
    """
    with translated("connecting"):
        return psycopg.connect(
            dsn,
            application_name=application_name,
            connect_timeout=CONNECT_TIMEOUT_S,
            # A dead peer is noticed in about half a minute instead of two hours.
            keepalives_idle=15,
            keepalives_interval=5,
            keepalives_count=3,
            options="-c timezone=UTC -c client_min_messages=warning",
        )
