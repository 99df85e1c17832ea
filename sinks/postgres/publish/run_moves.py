"""The part of the publish transaction for a batch run: its name, what it replaces."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.voted_rows import VotedRows
from tallyweir.sinks.postgres.server.branch_names import HOME
from tallyweir.sinks.postgres.server.naming import TableNames
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.staging.corrections import CORRECTION, Corrections
from tallyweir.sinks.protocol.batch_run import BatchRun
from tallyweir.sinks.protocol.votes import BatchTally

_SQL = load_statements("tallyweir.sinks.postgres.publish", "publish.sql")


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
