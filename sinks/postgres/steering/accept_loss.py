"""Lets a pipeline go on without rows of a result table that are gone for good.

The loss is written to the ledger with a reason, and ``verify`` tells it instead of
looking for the rows.
"""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow

from sinks.postgres.audit.audited_pipeline import read_pipeline
from sinks.postgres.branch_names import HOME
from sinks.postgres.columns import qualified
from sinks.postgres.foreign_code import hold_tables
from sinks.postgres.lost_tables import (
    LostRows,
    accept_lost,
    find_lost,
    forget_windows,
)
from sinks.postgres.naming import state_table
from sinks.postgres.steering.act import ActRequest, acting
from sinks.protocol.errors import ConfigurationError


def accept_loss(
    connection: Connection[TupleRow], request: ActRequest, table: str
) -> LostRows:
    """Give up the rows that all batches so far have brought into a table of the home.

    A driver at work is fenced, and makes the table again when it starts over. Windows
    that are open begin again from nothing: their rows are gone with the others.

    Args:
        connection: To the home, not inside of a transaction.
        request: The pipeline, and why.
        table: Of one of its outputs, which is gone or empty.

    Raises:
        ConfigurationError: As ``acting``; or ``NO_LOSS``: nothing of it is missing, or
            its table is not in the home.
        RetryableError: As ``acting``.

    Crash:
        Before the COMMIT nothing has changed; after it a repeated call finds no loss.
    """
    with acting(connection, request) as act:
        pipeline = read_pipeline(connection, request.pipeline)
        hold_tables(connection, pipeline)
        named = [
            output
            for output in pipeline.outputs
            if qualified(output.table) == qualified(table)
            and output.databases == (HOME,)
            and output.kind != "outbox"
        ]
        lost = None
        for output in named:
            lost = find_lost(connection, pipeline.name, output.table, kind=output.kind)
        if lost is None:
            raise ConfigurationError(
                "NO_LOSS",
                saw=f"Pipeline {pipeline.name} misses no table {table} in its home.",
                why="Rows that are there are not given up, and what a table lacks of "
                "them verify tells.",
                fix="Name a table that a start of the driver says is gone.",
            )
        accept_lost(
            connection,
            pipeline.name,
            lost,
            through=act.last_sequence,
            reason=request.reason,
        )
        forget_windows(connection, state_table(pipeline.number, lost.table))
        act.detail.update(table=lost.table, rows=lost.rows, batches=lost.batches)
    return lost
