"""The moves of a publish transaction: voted rows, keyed state, and a batch run.

The home's publish transaction and every branch move rows in the same way: append the
rows staged for them, merge their windows, and check that as many rows moved as were
voted for. Keyed state, timers and batch runs are the home's alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.output import Output, VotedRows, row_refusals
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.publish.publish_clock import PublishClock
from tallyweir.sinks.postgres.server.instants import to_datetime
from tallyweir.sinks.postgres.server.naming import HOME, TableNames, staged_for
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.staging.corrections import CORRECTION, Corrections
from tallyweir.sinks.protocol.batch_run import BatchRun
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.ports import BatchTerms
from tallyweir.sinks.protocol.votes import BatchTally

_SQL = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")


class OutputMoves:
    """The part of one publish transaction that changes result tables.

    Args:
        voted: The rows that the batch's voters staged for the transaction.
        clock: The transaction's clock, if it is measured.

    Attributes:
        digests: Digests of the rows written for good, as the ledger keeps them: by
            output, those of its table and of the table of its revisions.
    """

    def __init__(self, voted: VotedRows, clock: PublishClock | None = None) -> None:
        self._voted = voted
        self._clock = clock or PublishClock()
        self.digests: dict[str, dict[str, dict[str, int]]] = {}

    def run(self, outputs: Sequence[Output], branch: str) -> int:
        """Move what was staged for a branch; return the number of staged rows moved.

        Raises:
            RetryableError: ``STAGED_ROWS_MISSING``, after a crash of the server.
            RowRefusedError: A result table refused a row.
            psycopg.Error: Anything that the server or the connection raised.
        """
        rows = 0
        for output in outputs:
            with self._clock.spent_on(output.clock_part):
                moved = output.move(
                    self._voted, staged_for(output.staging_table, branch)
                )
            rows += moved.staged
            self.digests[output.table] = {
                kind: digest.as_json() for kind, digest in moved.digests.items()
            }
        # A user's deferred constraint must fail here, where the row can be found,
        # and not inside COMMIT or PREPARE TRANSACTION.
        with row_refusals(), self._clock.spent_on("rows"):
            self._voted.connection.execute(_SQL["check_deferred_constraints"])
        return rows


def publish_values(epoch: Epoch, terms: BatchTerms) -> dict[str, object]:
    """Collect the parameters that the statements of home and branches share."""
    return {
        "sequence": terms.sequence,
        "epoch": epoch,
        "watermark_before": to_datetime(terms.watermark_before_us),
        "watermark_after": to_datetime(terms.watermark_after_us),
        "planned_at": to_datetime(terms.planned_at_us),
    }


_KEYED = load_statements("tallyweir.sinks.postgres.publish", "keyed.sql")


def move_keyed(voted: VotedRows) -> None:
    """Change state and timers as the voted attempts of phase 2b staged it.

    State that has expired is deleted first.

    Args:
        voted: The rows that the batch's voters staged for the publish transaction.

    Raises:
        RetryableError: ``STAGED_ROWS_MISSING``.
        psycopg.Error: Anything that the server or the connection raised.
    """
    voted.connection.execute(_KEYED["drop_expired"], voted.values)
    # A name that is cleared may get new entries in the same batch.
    _change(voted, "keyed_state", "clear_names", "delete_entries", "put_entries")
    _change(voted, "keyed_timer", "drop_timers", "put_timers")


def _change(voted: VotedRows, staged: str, *statements: str) -> None:
    rows = voted.count(staged)
    voted.check_moved(staged, rows)
    if not rows:
        return
    staging = voted.tables.staging(staged)
    for statement in statements:
        voted.connection.execute(
            _KEYED[statement].format(staging=staging), voted.values
        )


def corrections_of(
    connection: psycopg.Connection[TupleRow],
    layout: PipelineLayout,
    tables: TableNames,
    tally: BatchTally,
) -> Corrections | None:
    """Return the corrections that remove single rows; None if there are none."""
    if layout.corrected_by is None or not tally.staged.get(CORRECTION):
        return None
    return Corrections(
        connection=connection,
        pipeline=layout.pipeline,
        id_column=layout.corrected_by,
        tables=tables,
        attempts=tally.attempts,
    )


def write_run(
    voted: VotedRows,
    layout: PipelineLayout,
    run: BatchRun,
    corrections: Corrections | None,
) -> None:
    """Record a run after its batch, and remove what it replaces.

    Args:
        voted: The rows that the batch's voters staged for the publish transaction.
        layout: The pipeline's tables.
        run: The run that the batch is.
        corrections: What ``corrections_of`` returns for the batch.

    Raises:
        RetryableError: ``STAGED_ROWS_MISSING``, after a crash of the server.
        psycopg.Error: Anything that the server or the connection raised.

    Crash:
        Part of the publish transaction: it is done with the batch, or not at all.
    """
    retracted = 0
    if corrections is not None:
        retracted = _replace_corrected(voted, layout, corrections)
    _record_run(voted, run, retracted)
    if run.replaces:
        _forget_former(voted, layout)


def _replace_corrected(
    voted: VotedRows, layout: PipelineLayout, corrections: Corrections
) -> int:
    """Make room for corrections; return how many of them bring no row."""
    found = corrections.count()
    voted.check_moved(CORRECTION, found.staged)
    for output in layout.outputs_of(HOME):
        assert output.kind.has_event_rows, "an upsert of anything else"
        corrections.replace(output.table, voted.values["sequence"])
    return found.retracting


def _record_run(voted: VotedRows, run: BatchRun, retracted: int) -> None:
    of_run = {
        **voted.values,
        "retracted": retracted,
        "run": run.name,
        "disposition": run.disposition.value,
    }
    voted.connection.execute(_SQL["insert_batch_run"], of_run)
    for given in run.inputs:
        voted.connection.execute(
            _SQL["insert_batch_run_input"],
            {
                **of_run,
                "partition": given.partition,
                "name": given.name,
                "checksum": given.checksum,
            },
        )


def _forget_former(voted: VotedRows, layout: PipelineLayout) -> None:
    """Remove what earlier batches left in tables and catalog, and the watermark.

    Their rows in the ledger stay, and so do dead letters and other events that did not
    become results.
    """
    for output in layout.outputs_of(HOME):
        for table in output.kept_tables(voted.tables):
            voted.connection.execute(_SQL["delete_rows"].format(table=table))
    for statement in ("await_merge", "forget_seen_ids", "forget_watermark"):
        voted.connection.execute(_SQL[statement], voted.values)
