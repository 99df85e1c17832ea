"""Erasures of the ledger scenario's events, for tests."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import TupleRow

from integration_tests.ledger_scenario import PIPELINE, failed, fake_fingerprint
from tallyweir.sinks.postgres import steering
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.steering import ActRequest, Erasure, ErasureRequest

Connection = psycopg.Connection[TupleRow]


def erase_events(
    connection: Connection,
    *ids: str,
    pipeline: str = PIPELINE,
    dry_run: bool = False,
    **more: Any,  # noqa: ANN401 - fields of the request
) -> Erasure:
    """Erase events for good, unless told otherwise."""
    connection.rollback()
    act = ActRequest(
        pipeline=pipeline, kind="erase", reason="request 4711", dry_run=dry_run
    )
    request = ErasureRequest(act=act, ids=ids, **more)
    return steering.erase(connection, request, fake_fingerprint)


def assert_verified(connection: Connection, pipeline: str = PIPELINE) -> None:
    """Assert that the product's own audit finds nothing."""
    connection.rollback()
    assert {} == failed(verify(connection, pipeline))
