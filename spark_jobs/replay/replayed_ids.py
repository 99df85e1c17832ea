"""The IDs of a replay: answers to claims as the driver gave them, and former IDs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from tallyweir.sinks.postgres.catalog.catalog_reader import PostgresRunSource
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.seen_ids.catalog_copy import CatalogCopy
from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer
from tallyweir.sinks.seen_ids.claim_holder import ClaimHolder, OpenView, RoundTerms
from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView

#: Larger than the number of every place.
_BEHIND = 1 << 60


class RecordedClaims(ClaimHolder):
    """Lets the same copy of an ID survive in a batch as in the pipeline.

    Chance decided which copy asked first; the ledger lists the copies that lost. They
    are sorted after all other rows, and the first row of each ID counts. A copy with no
    rival is the first of its ID, and survives whatever the ledger says of it.
    """

    _losers: Mapping[int, I64Array] = {}

    def follow(self, losers: Iterable[tuple[int, int]]) -> None:
        """Note the rows of the next batch that lost, by place and offset."""
        by_place: dict[int, list[int]] = {}
        for place, offset in losers:
            by_place.setdefault(place, []).append(offset)
        self._losers = {
            place: np.array(sorted(offsets), dtype=np.int64)
            for place, offsets in by_place.items()
        }

    def ask(self, round_number: int, asked: Candidates) -> ClaimAnswer:
        """Claim IDs for a round; see ``ClaimHolder.ask``."""
        lost = self._has_lost(asked)
        if not lost.any():
            return super().ask(round_number, asked)
        put_behind = replace(
            asked, place=np.where(lost, asked.place + _BEHIND, asked.place)
        )
        order = put_behind.order()
        answer = super().ask(round_number, put_behind.take(order))
        classes, buckets = np.empty_like(answer.classes), np.empty_like(answer.buckets)
        classes[order], buckets[order] = answer.classes, answer.buckets
        return ClaimAnswer(classes=classes, buckets=buckets)

    def review(self, filed: int, *, in_order: bool) -> int | None:
        """Review a round; see ``ClaimHolder.review``. The order always counts."""
        del in_order
        return super().review(filed, in_order=True)

    def _has_lost(self, asked: Candidates) -> BoolArray:
        lost = np.zeros(len(asked), dtype=np.bool_)
        for place, offsets in self._losers.items():
            lost |= (asked.place == place) & np.isin(asked.offset, offsets)
        return lost


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
