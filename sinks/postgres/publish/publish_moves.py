"""The moves of a publish transaction: voted rows, keyed state, and a batch run.

The home's publish transaction and every branch move rows in the same way: append the
rows staged for them, merge their windows, and check that as many rows moved as were
voted for. Keyed state, timers and batch runs are the home's alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg
from psycopg import sql
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


class KeyedMoves:
    """Changes state and timers as the voted attempts of phase 2b staged it.

    Args:
        voted: The rows that the batch's voters staged for the publish transaction.
    """

    def __init__(self, voted: VotedRows) -> None:
        self._voted = voted

    def run(self) -> None:
        """Delete state that has expired, then make the changes.

        Raises:
            RetryableError: ``STAGED_ROWS_MISSING``.
            psycopg.Error: Anything that the server or the connection raised.
        """
        self._execute(_KEYED["drop_expired"])
        # A name that is cleared may get new entries in the same batch.
        self._change("keyed_state", "clear_names", "delete_entries", "put_entries")
        self._change("keyed_timer", "drop_timers", "put_timers")

    def _change(self, staged: str, *statements: str) -> None:
        rows = self._voted.count(staged)
        self._voted.check_moved(staged, rows)
        if not rows:
            return
        staging = self._voted.tables.staging(staged)
        for statement in statements:
            self._execute(_KEYED[statement].format(staging=staging))

    def _execute(self, statement: sql.SQL | sql.Composed) -> None:
        self._voted.connection.execute(statement, self._voted.values)


class RunMoves:
    """Records a run in the ledger, and makes room for its rows.

    Args:
        connection: A connection in the publish transaction; the caller ends it.
        layout: The pipeline's tables.
        tables: The names of staging and state.
        tally: The batch's tally.
        run: The run that the batch is.
    """

    def __init__(
        self,
        connection: psycopg.Connection[TupleRow],
        layout: PipelineLayout,
        tables: TableNames,
        tally: BatchTally,
        run: BatchRun,
    ) -> None:
        self._connection = connection
        self._layout = layout
        self._tables = tables
        self._tally = tally
        self._run = run

    @property
    def corrections(self) -> Corrections | None:
        """The corrections that remove single rows; None if there are none."""
        id_column = self._layout.corrected_by
        if id_column is None or not self._tally.staged.get(CORRECTION):
            return None
        return Corrections(
            connection=self._connection,
            pipeline=self._layout.pipeline,
            id_column=id_column,
            tables=self._tables,
            attempts=self._tally.attempts,
        )

    def write(self, voted: VotedRows) -> None:
        """Record the run after its batch, and remove what it replaces.

        Raises:
            RetryableError: ``STAGED_ROWS_MISSING``, after a crash of the server.
            psycopg.Error: Anything that the server or the connection raised.

        Crash:
            Part of the publish transaction: it is done with the batch, or not at all.
        """
        retracted = self._replace_corrected(voted)
        self._record({**voted.values, "retracted": retracted})
        if self._run.replaces:
            self._forget(voted.values)

    def _replace_corrected(self, voted: VotedRows) -> int:
        """Make room for corrections; return how many of them bring no row."""
        corrections = self.corrections
        if corrections is None:
            return 0
        found = corrections.count()
        voted.check_moved(CORRECTION, found.staged)
        for output in self._layout.outputs_of(HOME):
            assert output.kind.has_event_rows, "an upsert of anything else"
            corrections.replace(output.table, voted.values["sequence"])
        return found.retracting

    def _record(self, values: Mapping[str, object]) -> None:
        run = self._run
        of_run = {**values, "run": run.name, "disposition": run.disposition.value}
        self._connection.execute(_SQL["insert_batch_run"], of_run)
        for given in run.inputs:
            self._connection.execute(
                _SQL["insert_batch_run_input"],
                {
                    **of_run,
                    "partition": given.partition,
                    "name": given.name,
                    "checksum": given.checksum,
                },
            )

    def _forget(self, values: Mapping[str, object]) -> None:
        """Remove what earlier batches left in tables and catalog, and the watermark.

        Their rows in the ledger stay, and so do dead letters and other events that did
        not become results.
        """
        for output in self._layout.outputs_of(HOME):
            for table in output.kept_tables(self._tables):
                self._connection.execute(_SQL["delete_rows"].format(table=table))
        self._connection.execute(_SQL["await_merge"], values)
        self._connection.execute(_SQL["forget_seen_ids"], values)
        self._connection.execute(_SQL["forget_watermark"], values)
