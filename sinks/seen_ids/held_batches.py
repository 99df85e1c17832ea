"""Batches whose IDs the holder knows from its own rounds, in front of the catalog.

The holder gave these IDs away itself, so it need not read them again. A round is
approved when the number of filed IDs equals the number of held IDs (claim_holder.py),
and each filed ID is held. So both are the same IDs, with the same payload hashes and
buckets, and they have one order. A publish moves all filed IDs or none.

- A batch that was refused is staged again, in a round of its own. When that round
  begins, the holder forgets the IDs of this batch and of the one after it.
- If the answer to a batch's COMMIT was lost, the same votes are published again under
  the same claim, or the driver starts over with another holder.
- No other batch has the same number: another driver that publishes claims a newer
  epoch, and the database then refuses all batches planned under this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tallyweir.sinks.seen_ids.catalog_copy import Fetched, RunSource
from tallyweir.sinks.seen_ids.segment import Columns


class HeldBatches:
    """The catalog, with the newest batches taken from memory.

    Args:
        held: IDs of batches that were published, by sequence.
        catalog: Source of every batch.
    """

    def __init__(self, held: Mapping[int, Columns], catalog: RunSource) -> None:
        self._held = held
        self._catalog = catalog

    def fetch_runs(
        self, *, after_sequence: int, through_sequence: int, live_from_bucket: int
    ) -> Iterator[tuple[int, Fetched]]:
        """Stream as ``RunSource.fetch_runs``; held batches may have expired IDs.

        Only held batches at the end of the range are used. The database sends merged
        IDs before any run, so a held batch in the middle would come in the wrong order.
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
