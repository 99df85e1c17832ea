"""Decides who claims an ID: the row that asks first, unless the catalog has the ID.

The claims are those of one round, an attempt to stage a batch (``claim``).

Each question takes a few numpy operations, and its rows come sorted. A question costs a
look-up in the catalog for each distinct ID. It also costs a look-up in this round's
claims for the few IDs whose slot in a table of 4 MiB is taken. Columns are copied only
if some of their rows are not wanted: if every ID of a question is new, its arrays are
kept as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tallyweir.sinks.protocol.catalog_limits import FALSE_POSITIVES
from tallyweir.sinks.seen_ids.bloom_filter import BloomFilter, blocks_for
from tallyweir.sinks.seen_ids.claim import (
    NO_HASH,
    Candidates,
    CatalogView,
    ClaimAnswer,
    Found,
    RowClass,
    U8Array,
)
from tallyweir.sinks.seen_ids.ordering import (
    BoolArray,
    I64Array,
    U64Array,
    find_pairs,
    merge_order,
)
from tallyweir.sinks.seen_ids.segment import Columns

_SLOT_BITS = 22
_SLOT_SHIFT = np.uint64(64 - _SLOT_BITS)
#: When there are more parts, they are merged into one; each question searches all.
_PARTS_MAX = 32


class RoundClaims:
    """Answers the questions of one round, in any order and as often as they come.

    Args:
        catalog: The catalog as it was before the batch.
        corrects: Whether the first row of an ID that the catalog holds is a
            correction, unless it has the same payload as the catalog's entry. If the
            catalog keeps no hash, the payload may be the same or not; replacing the
            entry is right in both cases. Further rows are compared with the first.
            Candidates must then have payload hashes.
        former: A round of the same batch and catalog, in which every row has asked.
            In this round the first position of each ID wins, whichever row asks first.
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
        #: Number of IDs that rows of the batch hold, as corrections or as new ones.
        self.survivors = 0
        #: Counts of look-ups; see ``Measures.ids``.
        self.searches = {"asked": 0, "looked_up": 0, "met": 0}
        self._slots = np.zeros(1 << _SLOT_BITS, dtype=np.bool_)
        firsts = None if former is None else former.first_positions()
        if firsts is not None:
            self._decide(firsts, np.arange(len(firsts)))

    @property
    def is_overtaken(self) -> bool:
        """Whether a row has lost to a later position that had asked before it."""
        return bool(self._overtaken)

    def ask(self, asked: Candidates) -> ClaimAnswer:
        """Let the first row of each new ID survive.

        An ID is new unless the catalog holds it in any live bucket, because a producer
        may send an event again with another event time. The other rows are duplicates;
        they are conflicts if both sides have payload hashes and these differ.
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
        return answer.result()

    def _ask_known(self, asked: Candidates, only_corrects: BoolArray) -> ClaimAnswer:
        """Leave out rows that only correct, if the catalog does not hold their IDs."""
        is_head = asked.is_head()
        heads = asked.only(np.flatnonzero(is_head))
        found = self._look_up(heads.hi, heads.lo).found
        asks = ~only_corrects | found[np.cumsum(is_head) - 1]
        answer = self.ask(asked.take(asks).all_asking())
        classes = np.full(len(asked), RowClass.UNKNOWN, dtype=np.uint8)
        buckets = asked.bucket.copy()
        classes[asks], buckets[asks] = answer.classes, answer.buckets
        return ClaimAnswer(classes=classes, buckets=buckets)

    def _decide(self, asked: Candidates, rows: I64Array) -> _Decided:
        """Decide on IDs that no row has asked for yet, by what the catalog knows.

        It notes the row that holds each ID, so that later answers agree. An entry of
        the catalog stays whichever row asks, so it is noted only if it can be
        corrected.

        Args:
            asked: The question.
            rows: Its rows that asked first, in rising order.
        """
        if self._corrects:
            return self._decide_corrections(asked.only(rows))
        hi, lo = asked.fingerprints(rows)
        known = self._look_up(hi, lo)
        stands = np.flatnonzero(known.found)
        heads = asked.only(np.delete(rows, stands))
        # Here the holding row's hash and bucket are those that count, so its columns
        # are not copied: a round may have millions of IDs.
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
        """Decide as ``_decide``, when the catalog's entries may be corrected."""
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
        """Return which of the IDs are held, and their claims; an ID is in one part."""
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
        """Return the IDs that are held now; later questions do not change it."""
        return HeldIds(tuple(self._parts))

    def first_positions(self) -> Candidates | None:
        """Return the first position that asked for each ID; None without any."""
        asked = [*(part.heads for part in self._parts), *self._overtaken]
        if not asked:
            return None
        every = Candidates.joined(asked)
        every = every.take(merge_order(every.hi, every.lo, every.place, every.offset))
        return every.take(np.flatnonzero(every.is_head()))


class HeldIds:
    """The IDs that rows of a batch hold; each ID is in one part."""

    def __init__(self, parts: Sequence[_Claims]) -> None:
        self._parts = parts

    def columns(self) -> Columns:
        """Return them as the catalog will know them.

        Once every task has asked, and the number of filed IDs equals the number of held
        IDs, these are the IDs that publishing the batch files.
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
    """Decisions on rows that asked first for their IDs, by what the catalog knows.

    Attributes:
        classes: Class of each row.
        stands: Rows whose ID keeps the catalog's entry.
        hashes: Hashes of those entries; ``NO_HASH`` if no hash is kept.
        buckets: The bucket to file each row under; None if it is each row's own.
    """

    classes: U8Array
    stands: I64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    hashes: U64Array = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    buckets: I64Array | None = None


class _Answer:
    """The answer to a question's rows, as it is built; rows of one ID are a group.

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
        #: Hash of the payload that counts in each group; at first its first row's.
        self._counts = None if hashes is None else hashes[firsts]

    def give_decided(self, groups: I64Array, decided: _Decided) -> None:
        """Answer the first rows of some groups as decided; their others are repeats."""
        rows = self._firsts[groups]
        self._classes[rows] = decided.classes
        if self._counts is not None:
            self._counts[groups[decided.stands]] = decided.hashes
        if decided.buckets is not None:
            self._file(rows, decided.buckets)

    def give_held(self, groups: I64Array, held: _Claims) -> None:
        """Answer the rows that hold their groups' IDs; each group's ID is held."""
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
            # The question's own column must not change.
            self._buckets = self._buckets.copy()
            self._buckets[rows] = buckets

    def result(self) -> ClaimAnswer:
        """Return the answer, and tell conflicts from mere repeats."""
        duplicate = np.uint8(RowClass.DUPLICATE)
        repeats = np.flatnonzero(self._classes == duplicate)
        hashes = self._asked.payload_hashes
        if repeats.size and hashes is not None and self._counts is not None:
            group = np.searchsorted(self._firsts, repeats, side="right") - 1
            counts = self._counts[group]
            differs = (hashes[repeats] != counts) & (counts != NO_HASH)
            self._classes[repeats[differs]] = RowClass.CONFLICT
        return ClaimAnswer(classes=self._classes, buckets=self._buckets)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Claims:
    """IDs that were asked for in this round.

    Attributes:
        heads: The row that holds each ID, sorted by fingerprint, no ID twice.
        classes: Class of that row; ``DUPLICATE`` if the catalog's entry stands.
        hashes: Hash of the payload that counts; ``NO_HASH`` if no hash is kept.
        buckets: The bucket to file each ID under.
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
        """Tell which rows of a question hold the ID of the claim at the same place."""
        same: BoolArray = self.heads.offset[claims] == asked.offset[rows]
        same &= self.heads.place[claims] == asked.place[rows]
        return same

    def is_held_after(self, asked: Candidates) -> BoolArray:
        """Tell which IDs are held by a later position than the one asking now."""
        later: BoolArray = self.heads.place > asked.place
        later |= (self.heads.place == asked.place) & (self.heads.offset > asked.offset)
        return later


def _hashes_of(heads: Candidates) -> U64Array:
    if heads.payload_hashes is None:
        return np.broadcast_to(np.uint64(NO_HASH), len(heads))
    return heads.payload_hashes


def _slots_of(hi: U64Array) -> I64Array:
    return (hi >> _SLOT_SHIFT).view(np.int64)
