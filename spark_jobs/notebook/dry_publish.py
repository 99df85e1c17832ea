"""The result of a dry publish: the tables, the counts, and an audit of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from tallyweir.sinks.postgres.audit import Receipt
from tallyweir.sinks.postgres.audit.why.slice_results import Position, SliceResults
from tallyweir.spark_jobs.notebook.shown_table import rows_as_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class DryPublish:
    """The slice, published as one batch into scratch databases.

    Attributes:
        results: Results of the slice.
        receipt: The receipt of ``verify`` on it.
        restagings: Times that it was staged again without rows that a table refused.
        not_demanded: Constraints of the pipeline's own tables that scratch tables lack,
            such as foreign keys; empty if both refuse the same rows.
    """

    results: SliceResults
    receipt: Receipt
    restagings: int
    not_demanded: tuple[str, ...]

    @property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """The rows that each result table gets, including outboxes."""
        shown = {
            table: rows_as_frame(rows) for table, rows in self.results.tables.items()
        }
        outbox = rows_as_frame(self.results.outbox)
        return shown if outbox.empty else shown | {"tallyweir.outbox": outbox}

    def counts(self) -> pd.DataFrame:
        """Show the ledger's counts of each partition; each row obeys the law."""
        return rows_as_frame(self.results.counts)

    def put_aside(self) -> pd.DataFrame:
        """Show the records that became no result: dead, duplicate, late and the rest.

        Rows that a table refused are dead with the reason REJECTED_BY_POSTGRES.
        """
        return fates_as_frame(self.results, sorted(self.results.fates))


def fates_as_frame(
    results: SliceResults, positions: Iterable[Position]
) -> pd.DataFrame:
    """Show the outcomes of the records at some positions."""
    rows = [(*at, *_told(results, at)) for at in positions]
    columns = ["topic", "partition", "offset", "outcome", "why"]
    return pd.DataFrame(rows, columns=columns)


def _told(results: SliceResults, at: Position) -> tuple[str, str]:
    fate = results.fate(at)
    return fate.outcome, fate.why
