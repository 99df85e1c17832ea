"""Batches whose IDs the holder knows from its own rounds, in front of the catalog.

What a batch has filed need not be read again by the one who gave it away. A round is
approved when as many IDs are filed as it holds (claim_holder.py), and each filed one is
held: so both are the same IDs, with the same payload hashes and buckets, and there is
one order of them. A publish moves all that was filed or nothing.

- A batch that was refused is staged again, in a round of its own: the holder forgets
  what it knew of it and of the one after it when that round begins.
- Of a batch whose answer was lost the same votes are published again under the same
  claim, or the driver starts over with another holder.
- Of the same number there is no other batch: who else publishes claims a newer epoch,
  and the database then refuses whatever was planned under this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sinks.seen_ids.catalog_copy import Fetched, RunSource
from sinks.seen_ids.segment import Columns


class HeldBatches:
    """The catalog, of which the newest batches are known without asking it.

    Args:
        held: IDs of batches that were published, by sequence.
        catalog: Has every batch.
    """

    def __init__(self, held: Mapping[int, Columns], catalog: RunSource) -> None:
        self._held = held
        self._catalog = catalog

    def fetch_runs(
        self, *, after_sequence: int, through_sequence: int, live_from_bucket: int
    ) -> Iterator[tuple[int, Fetched]]:
        """Stream what ``RunSource.fetch_runs`` does, but expired IDs of held batches.

        Batches are held at the end or not at all: what is merged in the database comes
        before any run, so one in the middle would come in the wrong order.
        """
        last_fetched = through_sequence
        while last_fetched > after_sequence and last_fetched in self._held:
            last_fetched -= 1
        if last_fetched > after_sequence:
            yield from self._catalog.fetch_runs(
                after_sequence=after_sequence,
                through_sequence=last_fetched,
                live_from_bucket=live_from_bucket,
            )
        for sequence in range(last_fetched + 1, through_sequence + 1):
            if len(self._held[sequence]):
                yield sequence, self._held[sequence]
