"""Answers claims as they were answered: who lost then asks last now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from sinks.seen_ids.claim import Candidates, Claim
from sinks.seen_ids.claim_holder import ClaimHolder
from sinks.seen_ids.ordering import BoolArray, I64Array

#: Behind the number of every place.
_BEHIND = 1 << 60


class RecordedClaims(ClaimHolder):
    """Lets of several copies of an ID in a batch that one survive which did.

    Which of them asked first was chance; the ledger lists those that lost. They are
    put behind all other rows, and the first row of each ID counts. A copy that lost to
    none is the first of its ID, and survives whatever the ledger says of it.
    """

    _losers: Mapping[int, I64Array] = {}

    def follow(self, losers: Iterable[tuple[int, int]]) -> None:
        """Take note of the rows of the next batch that lost: place and offset."""
        by_place: dict[int, list[int]] = {}
        for place, offset in losers:
            by_place.setdefault(place, []).append(offset)
        self._losers = {
            place: np.array(sorted(offsets), dtype=np.int64)
            for place, offsets in by_place.items()
        }

    def ask(self, round_number: int, asked: Candidates) -> Claim:
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
        return Claim(classes=classes, buckets=buckets)

    def review(self, filed: int, *, in_order: bool) -> int | None:
        """Review a round; see ``ClaimHolder.review``. The order counts in any case."""
        del in_order
        return super().review(filed, in_order=True)

    def _has_lost(self, asked: Candidates) -> BoolArray:
        lost = np.zeros(len(asked), dtype=np.bool_)
        for place, offsets in self._losers.items():
            lost |= (asked.place == place) & np.isin(asked.offset, offsets)
        return lost
