"""IDs of the batches that are not replayed, read from the pipeline's own catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from tallyweir.sinks.postgres.catalog.run_source import PostgresRunSource
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy
from tallyweir.sinks.seen_ids.claim_holder import OpenView, RoundTerms
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView


@contextmanager
def opened_former_ids(
    home_dsn: str,
    pipeline: str,
    through_sequence: int,
    *,
    directory: Path,
    false_positives: float,
) -> Iterator[FormerIds]:
    """Provide the IDs of a pipeline's batches up to one, while the block runs.

    Args:
        home_dsn: Connection string of the pipeline's home, which is only read.
        pipeline: Name of the pipeline.
        through_sequence: The last batch whose IDs are shown.
        directory: Directory for a copy of the catalog.
        false_positives: As in ``PipelineLayout``.
    """
    directory.mkdir(parents=True)
    merger = ThreadPoolExecutor(1, thread_name_prefix="former-ids-merge")
    with (
        connect(home_dsn, application_name="tallyweir replay") as connection,
        closing(
            CatalogCopy(directory, merger, false_positives=false_positives)
        ) as copy,
        merger,
    ):
        yield FormerIds(copy, PostgresRunSource(connection, pipeline), through_sequence)


class FormerIds:
    """Adds the IDs of former batches to those of the replayed batches."""

    def __init__(
        self, copy: CatalogCopy, catalog: PostgresRunSource, through_sequence: int
    ) -> None:
        self._copy = copy
        self._catalog = catalog
        self._through_sequence = through_sequence

    def beside(self, open_view: OpenView) -> OpenView:
        """Return a function that opens a view of both."""

        def open_both(terms: RoundTerms, held: Mapping[int, Columns]) -> SegmentView:
            view = open_view(terms, held)
            former = self._copy.view(
                catalog=self._catalog,
                live_from_bucket=terms.live_from_bucket,
                through_sequence=self._through_sequence,
            )
            return replace(view, parts=(*view.parts, *former.parts))

        return open_both
