"""Holds the IDs of one pipeline and answers the questions of a batch's tasks.

The holder lives in the driver, for one claim of one epoch. It keeps a copy of the
committed catalog on its disk. In memory it holds three sets of IDs: those that the
current round has claimed; those of the batch before, which may still be on their way
into Postgres; and those of the batch before that, so that the copy need not read them
again (``HeldBatches`` of ``catalog_copy``). So nothing is lost if the holder ends, and
a batch that is not published leaves nothing in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Self

from tallyweir.sinks.protocol.errors import FatalError
from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer
from tallyweir.sinks.seen_ids.round_claims import HeldIds, RoundClaims
from tallyweir.sinks.seen_ids.segment import Columns, SegmentView


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTerms:
    """What a round compares its IDs with.

    Attributes:
        through_sequence: The newest batch whose IDs count as seen.
        live_from_bucket: Older buckets have expired.
        corrects: Whether an ID with another payload corrects the earlier event.
    """

    through_sequence: int
    live_from_bucket: int
    corrects: bool


#: Shows the IDs that a round's terms ask for. Takes the IDs of earlier batches, by
#: sequence, that need not be read.
OpenView = Callable[[RoundTerms, Mapping[int, Columns]], SegmentView]


class _Approved:
    """A batch that is staged to be published, and its IDs."""

    def __init__(self, sequence: int, held: HeldIds | None) -> None:
        self.sequence = sequence
        self._held = held
        self._columns: Columns | None = None

    def columns(self) -> Columns:
        """Return its IDs, and merge them at the first call.

        One thread at a time calls this.
        """
        if self._columns is None:
            held, self._held = self._held, None
            self._columns = Columns.of_nothing() if held is None else held.columns()
        return self._columns


@dataclass(slots=True, kw_only=True, eq=False)
class _Round:
    number: int
    terms: RoundTerms
    view: Future[SegmentView]
    former: RoundClaims | None
    claims: RoundClaims | None = None


class ClaimHolder:
    """Answers the questions of one round after the other, from any thread.

    Use it as a context manager.

    Args:
        open_view: Called in a thread of its own, one call after the other.
    """

    def __init__(self, open_view: OpenView) -> None:
        self._open_view = open_view
        self._opener = ThreadPoolExecutor(1, thread_name_prefix="seen-ids")
        self._answering = threading.Lock()
        self._round: _Round | None = None
        #: The newest batches in their order, at most two.
        self._approved: tuple[_Approved, ...] = ()
        self._rounds = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._round, self._approved = None, ()
        self._opener.shutdown(cancel_futures=True)

    def begin(self, terms: RoundTerms) -> int:
        """Begin a round; forget the claims of earlier rounds of the same batch.

        A thread reads the catalog meanwhile, and the first task that asks waits for it.
        If the batch before this one was staged through this holder, its last round
        supplies its IDs, since it may not be committed yet. Every earlier batch must be
        committed. When a batch begins again, the holder forgets it and all batches
        that were staged after it, because their contents may change.

        Returns:
            The round's number, which each of its questions must name.
        """
        return self._begin(terms, former=None)

    def review(self, filed: int, *, in_order: bool) -> int | None:
        """Decide whether the rows staged in the current round may be published.

        A task that was run again may have decided differently. Then its first attempt
        holds IDs for rows that are not staged, and the rows that lost to those would be
        lost. So the number of filed IDs must equal the number of held IDs.

        Call it when every task of the round has ended.

        Args:
            filed: Number of IDs that the tasks which count have staged for the catalog.
            in_order: Whether the first row of an ID by position must survive.

        Returns:
            None if they may be published. Otherwise the number of a new round, in which
            the same rows must be staged again.
        """
        with self._answering:
            at_hand = self._round
        assert at_hand is not None, "there is no round to review"
        claims = at_hand.claims
        held = 0 if claims is None else claims.survivors
        if held != filed:
            return self._begin(at_hand.terms, former=None)
        if in_order and claims is not None and claims.is_overtaken:
            return self._begin(at_hand.terms, former=claims)
        sequence = at_hand.terms.through_sequence + 1
        before = [one for one in self._approved if one.sequence < sequence]
        now = _Approved(sequence, None if claims is None else claims.held())
        self._approved = (*before[-1:], now)
        return None

    def searches(self) -> Mapping[str, int]:
        """Return the counts of look-ups in the current round so far."""
        with self._answering:
            at_hand = self._round
            claims = None if at_hand is None else at_hand.claims
            return {} if claims is None else dict(claims.searches)

    def ask(self, round_number: int, asked: Candidates) -> ClaimAnswer:
        """Claim IDs for a round.

        Raises:
            FatalError: ``CLAIM_ROUND_OVER``: the task is a leftover of a round that
                has ended, and must not change the answers of this one.
            TallyweirError: The catalog could not be read.

        Crash:
            The claims of a round exist only in memory.
        """
        at_hand = self._round
        if at_hand is None or at_hand.number != round_number:
            raise _round_over(round_number)
        try:
            view = at_hand.view.result()
        except CancelledError as ended:
            raise _round_over(round_number) from ended
        with self._answering:
            if self._round is not at_hand:
                raise _round_over(round_number)
            if at_hand.claims is None:
                at_hand.claims = RoundClaims(
                    view, corrects=at_hand.terms.corrects, former=at_hand.former
                )
            return at_hand.claims.ask(asked)

    def _begin(self, terms: RoundTerms, former: RoundClaims | None) -> int:
        with self._answering:
            self._rounds += 1
            self._approved = tuple(
                one for one in self._approved if one.sequence <= terms.through_sequence
            )
            self._round = _Round(
                number=self._rounds,
                terms=terms,
                view=self._opener.submit(self._open, terms, self._approved),
                former=former,
            )
            return self._rounds

    def _open(self, terms: RoundTerms, approved: tuple[_Approved, ...]) -> SegmentView:
        held = {one.sequence: one.columns() for one in approved}
        newest = held.pop(terms.through_sequence, None)
        if newest is None:
            return self._open_view(terms, held)
        committed = replace(terms, through_sequence=terms.through_sequence - 1)
        before = self._open_view(committed, held)
        return replace(before, parts=(*before.parts, newest))


def _round_over(number: int) -> FatalError:
    return FatalError(
        "CLAIM_ROUND_OVER",
        saw=f"A task asked for its IDs in round {number}, which is over.",
        why="Its answers would mix with those of the current round's tasks.",
        fix="Nothing to do: the driver no longer waits for that task.",
    )
