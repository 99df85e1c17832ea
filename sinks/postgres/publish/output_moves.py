"""Moves a batch's voted rows from staging to the result tables of one transaction.

The home's publish transaction and every branch do the same: append the rows staged for
them, merge their windows, and check that as many rows moved as were voted for.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.voted_rows import VotedRows, row_refusals
from tallyweir.sinks.postgres.publish.publish_clock import PublishClock
from tallyweir.sinks.postgres.server.branch_names import staged_for
from tallyweir.sinks.postgres.server.instants import to_datetime
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.ports import BatchTerms

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
