"""Reads how much a server has written to its log, and the size of a catalog."""

from __future__ import annotations

from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.services.dev.bench.world", "server_bytes.sql")


def read_log_bytes(dsn: str) -> int:
    """Return how many bytes the server has ever written to its log."""
    return _read(dsn, "log_bytes")


def read_catalog_bytes(dsn: str, pipeline: str) -> int:
    """Return the size of a pipeline's seen IDs with indexes; 0 if it has none."""
    return _read(dsn, "catalog_bytes", pipeline=pipeline)


def _read(dsn: str, statement: str, **values: object) -> int:
    with connect(dsn, application_name="bench") as connection:
        ((number,),) = connection.execute(_SQL[statement], values).fetchall()
    return int(number)
