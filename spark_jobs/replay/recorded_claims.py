"""Answers claims as the driver did: a copy that lost then asks last now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer
from tallyweir.sinks.seen_ids.claim_holder import ClaimHolder
from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array

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
