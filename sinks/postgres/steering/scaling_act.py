"""Sets the bounds of a pipeline's scaling; its driver reads them within seconds."""

from __future__ import annotations

from psycopg import Connection, Rollback
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch_pipeline
from tallyweir.sinks.postgres.ledger.scaling_record import read_bounds
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.scaling.bounds import Bounds

_SQL = load_statements("tallyweir.sinks.postgres.steering", "scaling_act.sql")


def set_bounds(
    connection: Connection[TupleRow],
    pipeline: str,
    wanted: Bounds,
    *,
    dry_run: bool = False,
) -> Bounds:
    """Set a pipeline's bounds; those that are None stay as they were.

    If two callers set one bound each at the same time, both changes hold.

    Args:
        connection: To the home, outside a transaction.
        pipeline: The pipeline's name.
        wanted: The new bounds.
        dry_run: Do it and roll it back, to tell what the bounds would be.

    Returns:
        The bounds that hold from now on.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.

    Crash:
        One commit: before it the former bounds hold, after it these.
    """
    with translated("setting the bounds of scaling"), connection.transaction():
        fetch_pipeline(connection, pipeline)
        executors, batch = wanted.executors, wanted.batch_offsets
        values = {
            "pipeline": pipeline,
            "executors_min": executors and executors.least,
            "executors_max": executors and executors.most,
            "batch_offsets_min": batch and batch.least,
            "batch_offsets_max": batch and batch.most,
        }
        connection.execute(_SQL["set_bounds"], values)
        bounds = read_bounds(connection, pipeline)
        if dry_run:
            raise Rollback
    return bounds


def end_scaling(
    connection: Connection[TupleRow], pipeline: str, *, dry_run: bool = False
) -> Bounds:
    """Remove a pipeline's bounds, so that it stays as it is from now on.

    Args:
        connection: To the home, outside a transaction.
        pipeline: The pipeline's name.
        dry_run: Only tell which bounds would end.

    Returns:
        The bounds that have held until now.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.

    Crash:
        One commit: before it the bounds hold, after it there are none.
    """
    with translated("ending the scaling of a pipeline"), connection.transaction():
        fetch_pipeline(connection, pipeline)
        former = read_bounds(connection, pipeline)
        if not dry_run:
            connection.execute(_SQL["delete_bounds"], {"pipeline": pipeline})
        return former
