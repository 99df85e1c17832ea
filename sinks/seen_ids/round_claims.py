"""The claims of one round: who asked first for each ID that the batch brings.

Everything is a few numpy operations per question, whose rows come sorted: a question
of n rows costs a look at the catalog for each distinct ID, and one at what was claimed
in this round for the few whose slot in a table of 4 MiB is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sinks.seen_ids.bloom_filter import FALSE_POSITIVES, BloomFilter, blocks_for
from sinks.seen_ids.claim import (
    NO_HASH,
    Candidates,
    CatalogView,
    Claim,
    RowClass,
    U8Array,
)
from sinks.seen_ids.ordering import (
    BoolArray,
    I64Array,
    U64Array,
    find_pairs,
)
from sinks.seen_ids.segment import Columns

_SLOT_BITS = 22
_SLOT_SHIFT = np.uint64(64 - _SLOT_BITS)
#: Parts beyond so many are made one, or each question would search all of them.
_PARTS_MAX = 32


class RoundClaims:
    """Answers the questions of one round, in any order and as often as they come.

    Args:
        catalog: What was there before the batch.
        corrects: Whether the first row of an ID that the catalog holds is a
            correction, unless it has the very payload of the catalog. One of which
            the catalog keeps no hash may be the same or not: putting it in the
            other's place is right in both cases. The further rows are held against
            the first. Candidates must have payload hashes then.
        former: A round of the same batch and catalog, in which every row has asked:
            the first position of each ID wins in this one, whoever asks first.
    """

    def __init__(
        self,
        catalog: CatalogView,
        *,
        corrects: bool = False,
        former: RoundClaims | None = None,
    ) -> None:
        self._catalog = catalog
        self._corrects = corrects
        self._parts: list[_Claims] = []
        self._overtaken: list[Candidates] = []
        #: IDs that rows of the batch hold, in the places of others or as new ones.
        self.survivors = 0
        self._slots = np.zeros(1 << _SLOT_BITS, dtype=np.bool_)
        firsts = None if former is None else former.first_positions()
        if firsts is not None:
            self._add(self._decide(firsts))

    @property
    def is_overtaken(self) -> bool:
        """Whether a row has lost to a later position, which had asked before."""
        return bool(self._overtaken)

    def ask(self, asked: Candidates) -> Claim:
        """Let the first row of each new ID survive.

        An ID is new unless the catalog holds it, in any live bucket, because an event
        may be sent again with another event time. The other rows are duplicates, or
        conflicts if payload hashes were kept of both sides and differ.
        """
        assert asked.is_in_order(), "rows must be sorted before they ask"
        if asked.only_corrects is not None:
            return self._ask_known(asked, asked.only_corrects)
        is_head = asked.is_head()
        claims = self._claims_of(asked.take(np.flatnonzero(is_head)))
        group = np.cumsum(is_head) - 1
        wins = claims.is_held_by(asked, group)
        duplicate = np.uint8(RowClass.DUPLICATE)
        classes = np.where(wins, claims.classes[group], duplicate)
        repeats = np.flatnonzero(classes == duplicate)
        if repeats.size and asked.payload_hashes is not None:
            before = claims.hashes[group[repeats]]
            differs = (asked.payload_hashes[repeats] != before) & (before != NO_HASH)
            classes[repeats[differs]] = RowClass.CONFLICT
        return Claim(classes=classes, buckets=claims.buckets[group])

    def _ask_known(self, asked: Candidates, only_corrects: BoolArray) -> Claim:
        """Leave out the rows that would correct what is not there."""
        is_head = asked.is_head()
        heads = asked.take(np.flatnonzero(is_head))
        found = self._catalog.find(heads.hi, heads.lo).found
        asks = ~only_corrects | found[np.cumsum(is_head) - 1]
        answer = self.ask(asked.take(asks).all_asking())
        classes = np.full(len(asked), RowClass.UNKNOWN, dtype=np.uint8)
        buckets = asked.bucket.copy()
        classes[asks], buckets[asks] = answer.classes, answer.buckets
        return Claim(classes=classes, buckets=buckets)

    def _claims_of(self, heads: Candidates) -> _Claims:
        """Return who holds each ID; who is the first to ask for one holds it."""
        rows, held = self._find(heads)
        if not rows.size:
            claims = self._decide(heads)
            self._note(claims)
            return claims
        early = held.is_held_after(heads.take(rows))
        if early.any():
            self._overtaken.append(heads.take(rows[early]))
        is_fresh = np.ones(len(heads), dtype=np.bool_)
        is_fresh[rows] = False
        fresh = np.flatnonzero(is_fresh)
        decided = self._decide(heads.take(fresh))
        self._note(decided)
        order = np.argsort(np.concatenate([rows, fresh]))
        return _Claims.joined([held, decided]).take(order)

    def _decide(self, heads: Candidates) -> _Claims:
        """Decide upon IDs for which nobody has asked, by what the catalog knows."""
        hashes = _hashes_of(heads)
        known = self._catalog.find(heads.hi, heads.lo)
        stands = known.found
        if self._corrects:
            assert heads.payload_hashes is not None, "what differs could not be told"
            # No row's hash is NO_HASH.
            stands = stands & (hashes == known.payload_hashes)
        corrected = known.found & ~stands
        classes = np.full(len(heads), RowClass.SURVIVOR, dtype=np.uint8)
        classes[stands] = RowClass.DUPLICATE
        classes[corrected] = RowClass.CORRECTION
        later = np.maximum(heads.bucket, known.buckets)
        return _Claims(
            heads=heads,
            classes=classes,
            hashes=np.where(stands, known.payload_hashes, hashes),
            buckets=np.where(corrected, later, heads.bucket),
        )

    def _note(self, claims: _Claims) -> None:
        """Keep what must be answered alike from now on.

        What stands in the catalog stands whoever asks, unless it can be corrected.
        """
        if not self._corrects:
            holds = np.flatnonzero(claims.classes != np.uint8(RowClass.DUPLICATE))
            heads = claims.heads.take(holds)
            # What holds an ID is what counts of it, so it is kept once: a round may
            # be of millions of IDs.
            claims = _Claims(
                heads=heads,
                classes=claims.classes[holds],
                hashes=_hashes_of(heads),
                buckets=heads.bucket,
            )
        self._add(claims)

    def _add(self, claims: _Claims) -> None:
        self.survivors += int(
            np.count_nonzero(claims.classes != np.uint8(RowClass.DUPLICATE))
        )
        self._slots[_slots_of(claims.heads)] = True
        self._parts.append(claims)
        if len(self._parts) > _PARTS_MAX:
            merged = _Claims.joined(self._parts)
            self._parts = [merged.take(merged.heads.order())]

    def _find(self, heads: Candidates) -> tuple[I64Array, _Claims]:
        """Return the rows whose IDs are held, and by whom; each ID is in one part."""
        taken = np.flatnonzero(self._slots[_slots_of(heads)])
        rows: list[I64Array] = [np.empty(0, dtype=np.int64)]
        held = [_Claims.none_of(heads)]
        hi, lo = heads.hi[taken], heads.lo[taken]
        for part in self._parts if taken.size else ():
            found, at = find_pairs(part.heads.hi, part.heads.lo, hi, lo)
            if found.size:
                rows.append(taken[found])
                held.append(part.take(at))
        return np.concatenate(rows), _Claims.joined(held)

    def held(self) -> Columns:
        """Return the IDs that rows of the batch hold, as the catalog will know them.

        Once every task has asked, and as many IDs are filed as are held, these are
        the IDs that publishing the batch files.
        """
        if not self._parts:
            return Columns.of_nothing()
        claims = _Claims.joined(self._parts)
        claims = claims.take(
            np.flatnonzero(claims.classes != np.uint8(RowClass.DUPLICATE))
        )
        claims = claims.take(claims.heads.order())
        hi, lo = claims.heads.hi, claims.heads.lo
        blocks = blocks_for(len(hi), FALSE_POSITIVES)
        return Columns(
            hi=hi,
            lo=lo,
            payload_hashes=claims.hashes,
            buckets=claims.buckets,
            bloom=BloomFilter.over(hi, lo, blocks=blocks),
        )

    def first_positions(self) -> Candidates | None:
        """Return the first row that has asked for each ID; None if there are none."""
        asked = [*(part.heads for part in self._parts), *self._overtaken]
        if not asked:
            return None
        every = Candidates.joined(asked)
        every = every.take(every.order())
        return every.take(np.flatnonzero(every.is_head()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Claims:
    """IDs that were asked for in this round.

    Attributes:
        heads: The row that holds each, sorted by fingerprint, no ID twice.
        classes: What that row is; ``DUPLICATE`` where the catalog's entry stands.
        hashes: The payload that counts, as a hash; ``NO_HASH`` if none is kept.
        buckets: The bucket to file each under.
    """

    heads: Candidates
    classes: U8Array
    hashes: U64Array
    buckets: I64Array

    @classmethod
    def none_of(cls, heads: Candidates) -> _Claims:
        nothing = np.empty(0, dtype=np.int64)
        return cls(
            heads=heads.take(nothing),
            classes=nothing.astype(np.uint8),
            hashes=nothing.astype(np.uint64),
            buckets=nothing,
        )

    @classmethod
    def joined(cls, parts: Sequence[_Claims]) -> _Claims:
        return cls(
            heads=Candidates.joined([part.heads for part in parts]),
            classes=np.concatenate([part.classes for part in parts]),
            hashes=np.concatenate([part.hashes for part in parts]),
            buckets=np.concatenate([part.buckets for part in parts]),
        )

    def take(self, rows: I64Array) -> _Claims:
        return _Claims(
            heads=self.heads.take(rows),
            classes=self.classes[rows],
            hashes=self.hashes[rows],
            buckets=self.buckets[rows],
        )

    def is_held_by(self, asked: Candidates, group: I64Array) -> BoolArray:
        """Tell which rows hold the ID of their group."""
        same: BoolArray = self.heads.offset[group] == asked.offset
        same &= self.heads.place[group] == asked.place
        return same

    def is_held_after(self, asked: Candidates) -> BoolArray:
        """Tell which IDs are held by a later position than the one that asks now."""
        later: BoolArray = self.heads.place > asked.place
        later |= (self.heads.place == asked.place) & (self.heads.offset > asked.offset)
        return later


def _hashes_of(heads: Candidates) -> U64Array:
    if heads.payload_hashes is None:
        return np.broadcast_to(np.uint64(NO_HASH), len(heads))
    return heads.payload_hashes


def _slots_of(heads: Candidates) -> I64Array:
    return (heads.hi >> _SLOT_SHIFT).astype(np.int64)
