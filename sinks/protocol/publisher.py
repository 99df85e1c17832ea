"""Publishes batches to the home database and to its participants.

Two-phase commit with the home as last agent (Gray's optimisation): every branch is
prepared first, then the home's COMMIT decides, then the branches are committed. A
batch that changes only the home database prepares nothing and can never be in doubt.

This module is pure like the rest of the protocol: ports and decisions, no I/O of its
own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallyweir.sinks.faultpoints import FaultPoint, making
from tallyweir.sinks.protocol.decisions import PublishDecision, PublishOutcome
from tallyweir.sinks.protocol.errors import DisagreementError, RetryableError
from tallyweir.sinks.protocol.in_doubt import GlobalId, compare_history
from tallyweir.sinks.protocol.ports import (
    BatchPlan,
    BranchOrder,
    Home,
    Participant,
    PublishTransaction,
)
from tallyweir.sinks.protocol.resolution import commit_decided, resolve
from tallyweir.sinks.protocol.votes import BatchTally


class Publisher:
    """Publishes the batches of one driver, one after the other.

    Args:
        home: Has claimed its epoch.
        participants: Every database that the pipeline's branches are in, for the
            home's claim.
    """

    def __init__(self, home: Home, participants: Sequence[Participant] = ()) -> None:
        self._home = home
        self._participants = {one.database: one for one in participants}
        self._attempts = 0
        #: Whether a branch of this driver, or of an earlier one, may be in doubt.
        self._unsettled = bool(participants)

    def start(self) -> None:
        """Make the participants ready, and finish what earlier drivers have left.

        Raises:
            TallyweirError: As ``settle`` and the participants do.

        Crash:
            The next driver does the same.
        """
        for participant in self._participants.values():
            participant.open()
        self.settle()
        for participant in self._participants.values():
            participant.create_tables()

    def publish(
        self, plan: BatchPlan, tally: BatchTally, *, restagings: int
    ) -> PublishOutcome:
        """Publish a batch everywhere, or nowhere.

        Raises:
            FencedError: A newer epoch is claimed; nothing is decided.
            RowsRejectedError: A result table refused rows; nothing is decided.
            OutcomeUnknownError: The answer to the home's COMMIT was lost; calling
                again with the same arguments finds out.
            RetryableError: Nothing is decided; or the batch is decided and a branch
                has yet to be committed, which the next call or the next driver does.
            FatalError: The databases disagree with the plan, or with each other even
                after the decided branches were committed.

        Crash:
            Before the home's COMMIT: branches may stay prepared and undecided; the next
            driver rolls them back. After it: branches may stay prepared and decided;
            the next driver or the resolver commits them.
        """
        if self._unsettled:
            self.settle()
        try:
            with self._home.open_publish_transaction(
                plan, tally, restagings=restagings
            ) as transaction:
                if transaction.decision is PublishDecision.ALREADY_COMMITTED:
                    branches: list[GlobalId] = []
                    outcome = PublishOutcome.ALREADY_COMMITTED
                else:
                    branches = self._decide(transaction, tally)
                    outcome = PublishOutcome.COMMITTED
        except DisagreementError as found:
            # The branch has compared only markers. Its database may have gone back to
            # where a decided branch is still prepared; then nothing is really lost.
            self.settle()
            raise _looked_again(found) from found
        if branches:
            self._commit(branches)
        return outcome

    def settle(self) -> None:
        """Finish what is in doubt: commit decided branches, roll back all others.

        Call it only while no publish transaction of this driver is open.

        Raises:
            FatalError: A decided branch is lost, or a database has another history.
            ConfigurationError: A decided branch is in a database that the pipeline
                no longer knows.
            RetryableError: A database did not answer; call again.

        Crash:
            Each step is one statement that may be repeated.
        """
        for participant in self._participants.values():
            participant.await_quiet()
        try:
            self._resolve_and_compare()
        except DisagreementError:
            # Between the two steps, a database may have gone back to where a decided
            # branch is prepared. The second try commits it; a lost one stays lost.
            self._resolve_and_compare()

    def sweep(self) -> None:
        """Look once more for branches of earlier drivers; this is cheap.

        Postgres may still run PREPARE TRANSACTION when its client is long dead, after
        the sweep at a driver's start. The locks of that branch would stop a batch
        sooner or later.
        """
        if any(one.list_prepared() for one in self._participants.values()):
            self.settle()

    def _decide(
        self, transaction: PublishTransaction, tally: BatchTally
    ) -> list[GlobalId]:
        """Prepare the branches, do the home's own share, and commit the home."""
        orders = self._orders(transaction, tally)
        gids = [order.gid for order in orders]
        if gids:
            self._unsettled = True
        try:
            for order in orders:
                self._participant(order.gid).begin_prepare(order)
            transaction.move_rows()
            self._await_prepared(gids, transaction)
        except RetryableError:
            raise
        except Exception:
            # The cause is known and the driver goes on, so it cleans up at once. If a
            # database fails even now, the driver settles it before the next batch.
            self._roll_back(gids)
            raise
        with making(FaultPoint.DECISION_COMMITTED):
            transaction.commit(gids)
        return gids

    def _orders(
        self, transaction: PublishTransaction, tally: BatchTally
    ) -> list[BranchOrder]:
        orders = []
        for participant in self._participants.values():
            for branch in participant.touched(tally, transaction.terms):
                self._attempts += 1
                gid = GlobalId(
                    claim=self._home.claim,
                    sequence=transaction.terms.sequence,
                    branch=branch,
                    attempt=self._attempts,
                )
                orders.append(
                    BranchOrder(gid=gid, tally=tally, terms=transaction.terms)
                )
        return orders

    def _await_prepared(
        self, gids: Sequence[GlobalId], transaction: PublishTransaction
    ) -> None:
        if not gids:
            return
        with making(FaultPoint.ALL_PREPARED):
            for gid in gids:
                with making(FaultPoint.BRANCH_PREPARED):
                    self._participant(gid).await_prepared(
                        gid, meanwhile=transaction.keep_alive
                    )

    def _commit(self, gids: Sequence[GlobalId]) -> None:
        with making(FaultPoint.ALL_COMMITTED):
            for gid in gids:
                with making(FaultPoint.BRANCH_COMMITTED):
                    commit_decided(self._participant(gid), gid)
        self._home.note_committed(gids)
        self._unsettled = False

    def _roll_back(self, gids: Sequence[GlobalId]) -> None:
        for gid in gids:
            try:
                participant = self._participant(gid)
                participant.await_quiet()
                participant.roll_back_prepared(gid)
            except RetryableError:
                return

    def _resolve_and_compare(self) -> None:
        claim = self._home.claim
        resolution = resolve(self._home, self._participants, at_rest=claim)
        if resolution.newest != claim:
            return
        try:
            self._check_histories()
        except DisagreementError:
            if self._home.read_in_doubt(()).newest == claim:
                raise
            # A newer driver has superseded this one meanwhile, and its unfinished work
            # was compared. Publishing will report that.
            return
        self._unsettled = False

    def _check_histories(self) -> None:
        decided = self._home.read_decided()
        for participant in self._participants.values():
            marked = participant.newest_markers()
            of_database = {
                branch: gid
                for branch, gid in decided.items()
                if gid.database == participant.database
            }
            for branch in sorted({*marked, *of_database}):
                compare_history(
                    branch, decided=of_database.get(branch), marked=marked.get(branch)
                )

    def _participant(self, gid: GlobalId) -> Participant:
        return self._participants[gid.database]


def _looked_again(found: DisagreementError) -> RetryableError:
    return RetryableError(
        "HISTORY_MENDED",
        saw=found.saw,
        why="The databases disagreed during a batch. By now every decided branch is "
        "committed and they agree, or a newer driver has taken over.",
        fix="Nothing to do: the driver starts over.",
    )
