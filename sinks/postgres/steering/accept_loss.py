"""Lets a pipeline go on without rows of a result table that are gone for good.

The ledger keeps the loss with a reason, and ``verify`` reports it instead of looking
for the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import (
    NO_DATABASES,
    connect_databases,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    read_pipeline,
)
from tallyweir.sinks.postgres.outputs.lost_tables import (
    LostRows,
    accept_lost,
    find_lost,
    forget_windows,
)
from tallyweir.sinks.postgres.server.columns import is_there, qualified
from tallyweir.sinks.postgres.server.naming import HOME, state_table
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.steering.act import ActRequest, acting
from tallyweir.sinks.postgres.tables.foreign_code import hold_tables
from tallyweir.sinks.protocol.errors import ConfigurationError


def accept_loss(
    connection: Connection[TupleRow],
    request: ActRequest,
    table: str,
    databases: Mapping[str, str] = NO_DATABASES,
) -> LostRows:
    """Give up the rows that all batches so far have brought into a table.

    A driver at work is fenced, and creates the table again when it starts over. Open
    windows begin again from nothing, because their rows are gone with the others. The
    act writes only to the home. If another database keeps state of such windows, the
    driver deletes it when it creates the table again.

    Args:
        connection: To the home, outside a transaction.
        request: The pipeline, and why.
        table: The table of one of its outputs. It must be gone or, in the home, empty.
        databases: Connection strings of the other databases, by name.

    Raises:
        ConfigurationError: As ``acting``; ``DATABASE_UNKNOWN``; or ``NO_LOSS``: nothing
            of the table is missing, or it is in several databases.
        RetryableError: As ``acting``; or the other database does not respond.

    Crash:
        Before the COMMIT nothing has changed; after it a repeated call finds no loss.
    """
    with acting(connection, request) as act:
        pipeline = read_pipeline(connection, request.pipeline)
        held = hold_tables(connection, pipeline)
        lost = _find(connection, pipeline, table, held, databases)
        if lost is None:
            raise ConfigurationError(
                "NO_LOSS",
                saw=f"Pipeline {pipeline.name} has not lost a table {table}.",
                why="Only a lost table of an output in a single database can be "
                "accepted as lost. Run tallyweir verify to find rows that an "
                "existing table lacks.",
                fix="Name a table that the driver reports as lost when it starts.",
            )
        accept_lost(
            connection,
            pipeline.name,
            lost,
            through=act.last_sequence,
            reason=request.reason,
        )
        state = state_table(pipeline.number, lost.table)
        if state.as_string(connection) in held:
            forget_windows(connection, state)
        act.detail.update(table=lost.table, rows=lost.rows, batches=lost.batches)
    return lost


def _find(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    table: str,
    held: frozenset[str],
    databases: Mapping[str, str],
) -> LostRows | None:
    """Find what is lost from a table that is in one database."""
    for output in pipeline.outputs:
        is_meant = qualified(output.table) == qualified(table)
        if not (is_meant and output.kind.has_table) or len(output.databases) > 1:
            continue
        is_home = output.databases == (HOME,)
        if not is_home and _is_beside(output, connection, databases):
            return None
        return find_lost(
            connection,
            pipeline.name,
            output.table,
            kind=output.kind,
            is_there=is_home and output.quoted(connection) in held,
        )
    return None


def _is_beside(
    output: AuditedOutput,
    connection: Connection[TupleRow],
    databases: Mapping[str, str],
) -> bool:
    """Tell whether a table exists in the participant that it belongs in."""
    with ExitStack() as opened:
        parts = connect_databases(opened, connection, output.databases, databases)
        (part,) = parts.of(output)
        with translated(f"checking database {part.name}"):
            return is_there(part.connection, output.identifier)
