"""The claims of one round: who asked first for each ID that the batch brings.

Everything is a few numpy operations per question, whose rows come sorted: a question
of n rows costs a look at the catalog for each distinct ID, and one at what was claimed
in this round for the few whose slot in a table of 4 MiB is taken. Columns are copied
only where some of their rows are not wanted: of a question whose every ID is new the
arrays are kept as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sinks.seen_ids.bloom_filter import FALSE_POSITIVES, BloomFilter, blocks_for
from sinks.seen_ids.claim import (
    NO_HASH,
    Candidates,
    CatalogView,
    Claim,
    Found,
    RowClass,
    U8Array,
)
from sinks.seen_ids.ordering import (
    BoolArray,
    I64Array,
    U64Array,
    find_pairs,
    merge_order,
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
        #: What looking IDs up took; see ``Measures.ids``.
        self.searches = {"asked": 0, "looked_up": 0, "met": 0}
        self._slots = np.zeros(1 << _SLOT_BITS, dtype=np.bool_)
        firsts = None if former is None else former.first_positions()
        if firsts is not None:
            self._decide(firsts, np.arange(len(firsts)))

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
        firsts = np.flatnonzero(asked.is_head())
        groups, held = self._find(asked, firsts)
        answer = _Answer(asked, firsts)
        if groups.size:
            early = held.is_held_after(asked.take(firsts[groups]))
            if early.any():
                self._overtaken.append(asked.take(firsts[groups[early]]))
            answer.give_held(groups, held)
        fresh = np.delete(np.arange(len(firsts)), groups)
        answer.give_decided(fresh, self._decide(asked, firsts[fresh]))
        return answer.claim()

    def _ask_known(self, asked: Candidates, only_corrects: BoolArray) -> Claim:
        """Leave out the rows that would correct what is not there."""
        is_head = asked.is_head()
        heads = asked.only(np.flatnonzero(is_head))
        found = self._look_up(heads.hi, heads.lo).found
        asks = ~only_corrects | found[np.cumsum(is_head) - 1]
        answer = self.ask(asked.take(asks).all_asking())
        classes = np.full(len(asked), RowClass.UNKNOWN, dtype=np.uint8)
        buckets = asked.bucket.copy()
        classes[asks], buckets[asks] = answer.classes, answer.buckets
        return Claim(classes=classes, buckets=buckets)

    def _decide(self, asked: Candidates, rows: I64Array) -> _Decided:
        """Decide upon IDs for which nobody has asked, by what the catalog knows.

        Who holds each is noted, for it to be answered alike from now on. What stands
        in the catalog stands whoever asks, so it is not, unless it can be corrected.

        Args:
            asked: The question.
            rows: Those of it that have asked first; rising.
        """
        if self._corrects:
            return self._decide_corrections(asked.only(rows))
        hi, lo = asked.fingerprints(rows)
        known = self._look_up(hi, lo)
        stands = np.flatnonzero(known.found)
        heads = asked.only(np.delete(rows, stands))
        # What holds an ID is what counts of it, so it is kept once: a round may be of
        # millions of IDs.
        self._note(
            _Claims(
                heads=heads,
                classes=np.broadcast_to(np.uint8(RowClass.SURVIVOR), len(heads)),
                hashes=_hashes_of(heads),
                buckets=heads.bucket,
            )
        )
        classes = np.full(len(rows), RowClass.SURVIVOR, dtype=np.uint8)
        classes[stands] = RowClass.DUPLICATE
        return _Decided(
            classes=classes, stands=stands, hashes=known.payload_hashes[stands]
        )

    def _decide_corrections(self, heads: Candidates) -> _Decided:
        """Decide as ``_decide`` does where the catalog's entries may be corrected."""
        assert heads.payload_hashes is not None, "what differs could not be told"
        known = self._look_up(heads.hi, heads.lo)
        # No row's hash is NO_HASH.
        stands = known.found & (heads.payload_hashes == known.payload_hashes)
        corrected = known.found & ~stands
        classes = np.full(len(heads), RowClass.SURVIVOR, dtype=np.uint8)
        classes[stands] = RowClass.DUPLICATE
        classes[corrected] = RowClass.CORRECTION
        later = np.maximum(heads.bucket, known.buckets)
        buckets = np.where(corrected, later, heads.bucket)
        self._note(
            _Claims(
                heads=heads,
                classes=classes,
                hashes=heads.payload_hashes,
                buckets=buckets,
            )
        )
        return _Decided(classes=classes, buckets=buckets)

    def _look_up(self, hi: U64Array, lo: U64Array) -> Found:
        found = self._catalog.find(hi, lo)
        self.searches["asked"] += len(hi)
        self.searches["looked_up"] += found.looked_up
        self.searches["met"] += found.met
        return found

    def _note(self, claims: _Claims) -> None:
        self.survivors += int(
            np.count_nonzero(claims.classes != np.uint8(RowClass.DUPLICATE))
        )
        self._slots[_slots_of(claims.heads.hi)] = True
        self._parts.append(claims)
        if len(self._parts) > _PARTS_MAX:
            merged = _Claims.joined(self._parts)
            order = merge_order(merged.heads.hi, merged.heads.lo)
            self._parts = [merged.take(order)]

    def _find(self, asked: Candidates, firsts: I64Array) -> tuple[I64Array, _Claims]:
        """Return which of the IDs are held, and by whom; each ID is in one part."""
        hi, lo = asked.fingerprints(firsts)
        taken = np.flatnonzero(self._slots[_slots_of(hi)])
        groups: list[I64Array] = [np.empty(0, dtype=np.int64)]
        held = [_Claims.none_of(asked)]
        hi, lo = hi[taken], lo[taken]
        for part in self._parts if taken.size else ():
            found, at = find_pairs(part.heads.hi, part.heads.lo, hi, lo)
            if found.size:
                groups.append(taken[found])
                held.append(part.take(at))
        return np.concatenate(groups), _Claims.joined(held)

    def held(self) -> HeldIds:
        """Return what is held now; who asks from now on changes nothing of it."""
        return HeldIds(tuple(self._parts))

    def first_positions(self) -> Candidates | None:
        """Return the first row that has asked for each ID; None if there are none."""
        asked = [*(part.heads for part in self._parts), *self._overtaken]
        if not asked:
            return None
        every = Candidates.joined(asked)
        every = every.take(merge_order(every.hi, every.lo, every.place, every.offset))
        return every.take(np.flatnonzero(every.is_head()))


class HeldIds:
    """The IDs that rows of a batch hold, each of them in one part."""

    def __init__(self, parts: Sequence[_Claims]) -> None:
        self._parts = parts

    def columns(self) -> Columns:
        """Return them as the catalog will know them.

        Once every task has asked, and as many IDs are filed as are held, these are
        the IDs that publishing the batch files.
        """
        if not self._parts:
            return Columns.of_nothing()
        hi = np.concatenate([part.heads.hi for part in self._parts])
        lo = np.concatenate([part.heads.lo for part in self._parts])
        classes = np.concatenate([part.classes for part in self._parts])
        hashes = np.concatenate([part.hashes for part in self._parts])
        buckets = np.concatenate([part.buckets for part in self._parts])
        order = merge_order(hi, lo)
        if (classes == np.uint8(RowClass.DUPLICATE)).any():
            order = order[classes[order] != np.uint8(RowClass.DUPLICATE)]
        hi, lo = hi[order], lo[order]
        blocks = blocks_for(len(hi), FALSE_POSITIVES)
        return Columns(
            hi=hi,
            lo=lo,
            payload_hashes=hashes[order],
            buckets=buckets[order],
            bloom=BloomFilter.over(hi, lo, blocks=blocks),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Decided:
    """What the rows are that have asked first for IDs, by what the catalog knows.

    Attributes:
        classes: Of each row.
        stands: Those whose ID keeps the catalog's entry, which has another hash.
        hashes: Of those entries; ``NO_HASH`` if none is kept.
        buckets: The bucket to file each under; None where it is each row's own.
    """

    classes: U8Array
    stands: I64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    hashes: U64Array = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    buckets: I64Array | None = None


class _Answer:
    """What the rows of a question are told; rows of one ID are a group.

    Args:
        asked: The question.
        firsts: The first row of each group.
    """

    def __init__(self, asked: Candidates, firsts: I64Array) -> None:
        self._asked = asked
        self._firsts = firsts
        self._classes = np.full(len(asked), RowClass.DUPLICATE, dtype=np.uint8)
        self._buckets = asked.bucket
        hashes = asked.payload_hashes
        #: Of each group the payload that counts, which is its first row's at first.
        self._counts = None if hashes is None else hashes[firsts]

    def give_decided(self, groups: I64Array, decided: _Decided) -> None:
        """Tell the first rows of some groups what was decided; others are repeats."""
        rows = self._firsts[groups]
        self._classes[rows] = decided.classes
        if self._counts is not None:
            self._counts[groups[decided.stands]] = decided.hashes
        if decided.buckets is not None:
            self._file(rows, decided.buckets)

    def give_held(self, groups: I64Array, held: _Claims) -> None:
        """Tell the rows that hold the IDs of their groups, each of which is held."""
        begins = self._firsts[groups]
        ends = np.append(self._firsts, len(self._asked))[groups + 1]
        sizes = ends - begins
        of_group = np.repeat(np.arange(len(groups)), sizes)
        rows = np.arange(len(of_group)) + np.repeat(ends - np.cumsum(sizes), sizes)
        holds = held.is_held_by(self._asked, rows, of_group)
        rows, of_group = rows[holds], of_group[holds]
        self._classes[rows] = held.classes[of_group]
        self._file(rows, held.buckets[of_group])
        if self._counts is not None:
            self._counts[groups] = held.hashes

    def _file(self, rows: I64Array, buckets: I64Array) -> None:
        if (self._buckets[rows] != buckets).any():
            # The question's own are not ours to change.
            self._buckets = self._buckets.copy()
            self._buckets[rows] = buckets

    def claim(self) -> Claim:
        """Return what was told, and tell conflicts from what merely repeats."""
        duplicate = np.uint8(RowClass.DUPLICATE)
        repeats = np.flatnonzero(self._classes == duplicate)
        hashes = self._asked.payload_hashes
        if repeats.size and hashes is not None and self._counts is not None:
            group = np.searchsorted(self._firsts, repeats, side="right") - 1
            counts = self._counts[group]
            differs = (hashes[repeats] != counts) & (counts != NO_HASH)
            self._classes[repeats[differs]] = RowClass.CONFLICT
        return Claim(classes=self._classes, buckets=self._buckets)


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

    def is_held_by(
        self, asked: Candidates, rows: I64Array, claims: I64Array
    ) -> BoolArray:
        """Tell which rows of a question hold the ID of the claim beside them."""
        same: BoolArray = self.heads.offset[claims] == asked.offset[rows]
        same &= self.heads.place[claims] == asked.place[rows]
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


def _slots_of(hi: U64Array) -> I64Array:
    return (hi >> _SLOT_SHIFT).view(np.int64)
