"""The participants in the model: each PREPARE and each COMMIT PREPARED is one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.tests.model.changes import (
    Step,
    broken,
    fault,
    name_of,
    newest_marker,
    others,
    prepare,
    put,
    put_branches,
)
from tallyweir.sinks.tests.model.home_server import Outcomes
from tallyweir.sinks.tests.model.rules import Rules
from tallyweir.sinks.tests.model.scripted_ports import Names, raised_by
from tallyweir.sinks.tests.model.staging import Staging
from tallyweir.sinks.tests.model.states import (
    FOREIGN,
    Gid,
    Order,
    Participant,
    Raised,
    Sent,
    State,
    World,
)


class ParticipantServers:
    """Finish branches when told to, and work on those that were begun.

    Args:
        advance: Lets drivers go on whose branches have ended.
    """

    def __init__(
        self,
        world: World,
        rules: Rules,
        names: Names,
        staging: Staging,
        advance: Callable[[State], State],
    ) -> None:
        self._world = world
        self._rules = rules
        self._names = names
        self._staging = staging
        self._advance = advance

    def steps(self, state: State) -> Iterator[Step]:
        """What the servers do with what they were told, well or late."""
        for order in state.orders:
            yield from self._work(state, order)
        for sent in state.sent:
            rest = tuple(other for other in state.sent if other != sent)
            after = prepare(state._replace(sent=rest), sent)
            yield Step(f"{name_of(sent.gid)}: is prepared, late", self._advance(after))
        for copy in state.copies:
            rest_of_copies = tuple(other for other in state.copies if other != copy)
            after = state._replace(
                copies=rest_of_copies, staged=state.staged.union([copy])
            )
            label = f"zombie attempt {copy.attempt} copies record {copy.record}"
            yield Step(f"{label} to {copy.database}", after)

    def _work(self, state: State, order: Order) -> Iterator[Step]:
        name = name_of(order.gid)
        if not any(order.owner == driver.claim[1] for driver in state.drivers):
            rest = state._replace(orders=others(state.orders, order))
            yield Step(f"{name}: is dropped", rest)
        if self.is_blocked(state, order.gid):
            holders = state.participants[order.gid.participant].prepared
            if any(gid.sequence == order.gid.sequence for gid, _ in holders):
                failed = Raised("retryable", "POSTGRES_UNAVAILABLE")
                after = self._report(state, order, failed)
                yield Step(f"{name}: waits in vain for a lock", after)
            return
        rows = self.work(state, order)
        if isinstance(rows, Raised):
            yield Step(f"{name}: {rows.code}", self._report(state, order, rows))
            return
        done = prepare(state, Sent(order.gid, rows))
        yield Step(f"{name}: is prepared", self._report(done, order, None))
        if state.budget.losses:
            budget = state.budget._replace(losses=state.budget.losses - 1)
            refused = Raised("fatal", "PREPARE_REFUSED")
            answer = refused if self._rules.checks_tag else None
            after = self._report(state._replace(budget=budget), order, answer)
            yield fault(f"{name}: PREPARE is answered by ROLLBACK", after)

    def work(self, state: State, order: Order) -> tuple[int, ...] | Raised:
        """What a branch's transaction holds before PREPARE, or how it fails."""
        gid = order.gid
        participant = state.participants[gid.participant]
        names = self._names
        newest = newest_marker(participant)
        if self._rules.branch_compares:
            try:
                self._rules.compare_history(
                    "branch",
                    decided=None if order.after is None else names.outside(order.after),
                    marked=None if newest is None else names.outside(newest),
                )
            except TallyweirError as error:
                return raised_by(error)
        same = names.outside(gid)
        if any(names.outside(known) == same for known, _ in participant.prepared):
            return Raised("fatal", "POSTGRES_REFUSED")
        if self._rules.markers_are_keyed and any(
            marker.sequence == gid.sequence for marker in participant.markers
        ):
            return Raised("fatal", "POSTGRES_REFUSED")
        rows = self._staging.moved(state, gid.participant, gid.epoch, order.attempts)
        refused = [row for row in rows if (row, gid.participant) in self._world.refused]
        if refused:
            return Raised("rejected", "ROWS", tuple(refused))
        if self._rules.counts_moved and len(rows) != order.rows:
            return Raised("retryable", "STAGED_ROWS_MISSING")
        return rows

    def is_blocked(self, state: State, gid: Gid) -> bool:
        """The marker's key belongs to one open transaction at a time."""
        if not self._rules.markers_are_keyed:
            return False
        open_ones = [known for known, _ in state.participants[gid.participant].prepared]
        open_ones += [s.gid for s in state.sent if s.gid.participant == gid.participant]
        return any(known.sequence == gid.sequence for known in open_ones)

    def _report(self, state: State, order: Order, end: Raised | None) -> State:
        return self.report(
            state._replace(orders=others(state.orders, order)), order, end
        )

    def report(self, state: State, order: Order, end: Raised | None) -> State:
        """Tell the driver, if it lives, how a branch ended."""
        for index, driver in enumerate(state.drivers):
            if order.owner == driver.claim[1]:
                ends = (*driver.inbox, (order.gid, end))
                inbox = tuple(sorted(ends, key=lambda item: item[0]))
                state = put(state, index, driver._replace(inbox=inbox))
        return self._advance(state)

    def list_prepared(self, state: State, number: int) -> tuple[Gid, ...]:
        """List what is prepared, another pipeline's included."""
        found = tuple(gid for gid, _ in state.participants[number].prepared)
        if self._world.foreign and number == FOREIGN.participant:
            return (*found, FOREIGN)
        return found

    def roll_back(self, state: State, gid: Gid) -> tuple[State, bool]:
        if gid == FOREIGN:
            return broken(state, "I7: another pipeline's branch is rolled back"), True
        participant = state.participants[gid.participant]
        rest = tuple(item for item in participant.prepared if item[0] != gid)
        if len(rest) == len(participant.prepared):
            return state, False
        if gid in state.home.decided:
            state = broken(state, f"I7: {gid} was decided and is rolled back")
        return put_branches(state, gid, participant._replace(prepared=rest)), True

    def commit_prepared(self, state: State, gid: Gid) -> Outcomes:
        after, done = self._do_commit(state, gid)
        yield "", after, done
        if state.budget.losses:
            lost = state.budget._replace(losses=state.budget.losses - 1)
            answer = Raised("retryable", "POSTGRES_UNREACHABLE")
            yield " (not done, answer lost)", state._replace(budget=lost), answer
            if done:
                yield " (done, answer lost)", after._replace(budget=lost), answer

    def _do_commit(self, state: State, gid: Gid) -> tuple[State, bool]:
        participant = state.participants[gid.participant]
        held = [rows for known, rows in participant.prepared if known == gid]
        if not held:
            return state, False
        if gid not in state.home.decided and not state.home_restored:
            state = broken(state, f"I7: {gid} is committed undecided")
        after = Participant(
            prepared=tuple(item for item in participant.prepared if item[0] != gid),
            markers=(*participant.markers, gid)
            if self._rules.marks
            else participant.markers,
            rows=tuple(sorted((*participant.rows, *held[0]))),
        )
        committed = state.committed | {gid}
        return put_branches(state, gid, after)._replace(committed=committed), True
