"""Steps of resolver, publisher and coordinator with a mistake in them."""
# ruff: noqa: ANN401, D101, D103 - the mutant's name says what is wrong

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tallyweir.sinks.protocol.coordinator import BatchResult, Coordinator, VotedBatch
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import OutcomeUnknownError, RetryableError
from tallyweir.sinks.protocol.in_doubt import (
    EpochClaim,
    GlobalId,
    InDoubtFacts,
)
from tallyweir.sinks.protocol.ports import BatchPlan, BranchOrder, PublishTransaction
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.protocol.resolution import commit_decided, resolve
from tallyweir.sinks.protocol.votes import BatchTally

# The resolver.


def lists_after_the_facts(
    ledger: Any, databases: Mapping[str, Any], *, at_rest: EpochClaim | None
) -> object:
    early: InDoubtFacts = ledger.read_in_doubt(())

    class Stale:
        def read_in_doubt(self, gids: Collection[GlobalId]) -> InDoubtFacts:
            del gids
            return early

        def note_committed(self, branches: Collection[GlobalId]) -> None:
            ledger.note_committed(branches)

    return resolve(Stale(), databases, at_rest=at_rest)


def notes_before_it_commits(
    ledger: Any, databases: Mapping[str, Any], *, at_rest: EpochClaim | None
) -> object:
    facts = ledger.read_in_doubt(())
    if facts.unresolved:
        ledger.note_committed(facts.unresolved)
    return resolve(ledger, databases, at_rest=at_rest)


class OnlyWhatIsListed:
    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger

    def read_in_doubt(self, gids: Collection[GlobalId]) -> InDoubtFacts:
        facts = self._ledger.read_in_doubt(gids)
        return InDoubtFacts(
            newest=facts.newest, decided=facts.decided, unresolved=frozenset()
        )

    def note_committed(self, branches: Collection[GlobalId]) -> None:
        self._ledger.note_committed(branches)


def forgets_what_is_not_listed(
    ledger: Any, databases: Mapping[str, Any], *, at_rest: EpochClaim | None
) -> object:
    return resolve(OnlyWhatIsListed(ledger), databases, at_rest=at_rest)


def resolver_works_for_the_live_driver(
    ledger: Any, databases: Mapping[str, Any], *, at_rest: EpochClaim | None
) -> object:
    own = at_rest or ledger.read_in_doubt(()).newest
    return resolve(ledger, databases, at_rest=own)


def commits_what_nobody_decided(
    ledger: Any, databases: Mapping[str, Any], *, at_rest: EpochClaim | None
) -> object:
    for database in databases.values():
        for gid in database.list_prepared():
            database.commit_prepared(gid)
    return resolve(ledger, databases, at_rest=at_rest)


# The publisher.


class DecidesBeforeTheLastPrepare(Publisher):
    def _await_prepared(
        self, gids: Sequence[GlobalId], transaction: PublishTransaction
    ) -> None:
        super()._await_prepared(gids[:-1], transaction)


class CommitsABranchBeforeTheDecision(Publisher):
    def _await_prepared(
        self, gids: Sequence[GlobalId], transaction: PublishTransaction
    ) -> None:
        super()._await_prepared(gids, transaction)
        for gid in gids[:1]:
            commit_decided(self._participant(gid), gid)


class NotesBeforeItCommits(Publisher):
    def _commit(self, gids: Sequence[GlobalId]) -> None:
        self._home.note_committed(gids)
        super()._commit(gids)


class NeverLooksAgain(Publisher):
    def publish(
        self, plan: BatchPlan, tally: BatchTally, *, restagings: int
    ) -> PublishOutcome:
        self._unsettled = False
        return super().publish(plan, tally, restagings=restagings)

    def sweep(self) -> None:
        pass


class SweepsAtTheStartOnly(Publisher):
    def sweep(self) -> None:
        pass


class LeavesTheDeadAlone(Publisher):
    def start(self) -> None:
        for participant in self._participants.values():
            participant.open()
            participant.create_tables()


class RollsBackWhatItDoesNotKnow(Publisher):
    def _decide(
        self, transaction: PublishTransaction, tally: BatchTally
    ) -> list[GlobalId]:
        before = self._attempts
        try:
            return super()._decide(transaction, tally)
        except RetryableError:
            self._attempts = before
            self._roll_back([o.gid for o in self._orders(transaction, tally)])
            raise


class ComparesNoHistories(Publisher):
    def _check_histories(self) -> None:
        pass


class BelievesTheFirstLook(Publisher):
    def settle(self) -> None:
        claim = self._home.claim
        for participant in self._participants.values():
            participant.await_quiet()
        if resolve(self._home, self._participants, at_rest=claim).newest == claim:
            self._check_histories()
            self._unsettled = False


class NumbersNoTries(Publisher):
    def _orders(
        self, transaction: PublishTransaction, tally: BatchTally
    ) -> list[BranchOrder]:
        self._attempts = 0
        orders = super()._orders(transaction, tally)
        self._attempts = 0
        return orders


class TakesSilenceForSuccess(Coordinator):
    def publish(self, voted: VotedBatch) -> BatchResult:
        try:
            outcome = self._publisher.publish(
                voted.plan, voted.tally, restagings=voted.restagings
            )
        except OutcomeUnknownError:
            outcome = PublishOutcome.COMMITTED
        return BatchResult(
            outcome=outcome, tally=voted.tally, restagings=voted.restagings
        )
