"""What may go wrong in a state, as far as the budget goes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tallyweir.sinks.tests.model.changes import (
    Step,
    fault,
    newest_claim,
    put_participant,
)
from tallyweir.sinks.tests.model.processes import Processes
from tallyweir.sinks.tests.model.states import DEAD, HOME, Order, Raised, Sent, State

_DRIVERS_MAX = 2

_LOST = Raised("retryable", "POSTGRES_UNREACHABLE")


class Faults:
    """Finds the faults that may happen next, and the starts of processes."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    def of(self, state: State) -> Iterator[Step]:
        """List them; the start of the only driver and of the resolver are no faults."""
        if not state.halted:
            yield from self._starts(state)
        yield from self._crashes(state)
        yield from self._endings(state)
        yield from self._late_prepares(state)
        yield from self._outages(state)
        yield from self._home_restores(state)
        yield from self._restores(state)

    def _starts(self, state: State) -> Iterator[Step]:
        budget = state.budget
        # Whoever claimed last is started again when it has ended.
        newest = newest_claim(state.home)
        is_missing = all(driver.claim != newest for driver in state.drivers)
        if is_missing and len(state.drivers) < _DRIVERS_MAX:
            yield Step("a driver starts", self._processes.start_driver(state))
        elif len(state.drivers) == 1 and budget.takeovers:
            fewer = budget._replace(takeovers=budget.takeovers - 1)
            after = self._processes.start_driver(state._replace(budget=fewer))
            yield fault("a second driver starts", after)
        if budget.resolver and state.resolver is None and _in_doubt(state):
            fewer = budget._replace(resolver=budget.resolver - 1)
            after = self._processes.start_resolver(state._replace(budget=fewer))
            yield Step("the resolver starts", after)

    def _crashes(self, state: State) -> Iterator[Step]:
        budget = state.budget
        if not budget.crashes:
            return
        fewer = budget._replace(crashes=budget.crashes - 1)
        for index, driver in enumerate(state.drivers):
            number = driver.claim[1]
            orders = [o for o in state.orders if o.owner == number]
            drivers = (*state.drivers[:index], *state.drivers[index + 1 :])
            after = state._replace(
                budget=fewer,
                drivers=drivers,
                orders=tuple(o for o in state.orders if o.owner != number),
            )
            for fates in product((False, True), repeat=len(orders)):
                late = [o for o, fate in zip(orders, fates, strict=True) if fate]
                outcome = self._send_late(after, late)
                if outcome is not None:
                    note = f", {len(late)} PREPARE under way" if late else ""
                    yield fault(f"driver {number} crashes{note}", outcome)

    def _send_late(self, state: State, orders: list[Order]) -> State | None:
        """The servers have got these PREPAREs and will do them; None if they cannot."""
        for order in orders:
            budget = state.budget
            rows = self._processes.servers.work(state, order)
            blocked = self._processes.servers.is_blocked(state, order.gid)
            if not budget.late or blocked or isinstance(rows, Raised):
                return None
            sent = tuple(sorted((*state.sent, Sent(order.gid, rows))))
            fewer = budget._replace(late=budget.late - 1)
            state = state._replace(sent=sent, budget=fewer)
        return state

    def _endings(self, state: State) -> Iterator[Step]:
        budget = state.budget
        if not budget.endings:
            return
        fewer = budget._replace(endings=budget.endings - 1)
        for index, driver in enumerate(state.drivers):
            if driver.is_open:
                drivers = list(state.drivers)
                drivers[index] = driver._replace(is_open=False, rows=(), dead=())
                after = state._replace(budget=fewer, drivers=tuple(drivers))
                label = f"the server ends the transaction of driver {driver.claim[1]}"
                yield fault(label, after)

    def _late_prepares(self, state: State) -> Iterator[Step]:
        """A live driver loses a connection on which it has sent PREPARE."""
        if not state.budget.late:
            return
        for order in state.orders:
            rest = tuple(other for other in state.orders if other != order)
            after = self._send_late(state._replace(orders=rest), [order])
            if after is not None:
                after = self._processes.servers.report(after, order, _LOST)
                gid = order.gid
                label = (
                    f"branch {gid.participant} of batch {gid.sequence}, claim "
                    f"{gid.claim}, try {gid.attempt}: connection lost, PREPARE sent"
                )
                yield fault(label, after)

    def _outages(self, state: State) -> Iterator[Step]:
        budget = state.budget
        if not budget.outages:
            return
        fewer = state._replace(budget=budget._replace(outages=budget.outages - 1))
        yield fault("home's server crashes", _lose_home(fewer))
        for number in range(len(state.participants)):
            after = self._lose_server(fewer, number)
            yield fault(f"participant {number}'s server crashes", after)

    def _lose_server(self, state: State, number: int) -> State:
        """Everything of a participant is gone but what is prepared or committed."""
        orders = [o for o in state.orders if o.gid.participant == number]
        state = state._replace(
            sent=tuple(s for s in state.sent if s.gid.participant != number),
            staged=frozenset(r for r in state.staged if r.database != number),
            orders=tuple(o for o in state.orders if o.gid.participant != number),
        )
        for order in orders:
            state = self._processes.servers.report(state, order, _LOST)
        return state

    def _home_restores(self, state: State) -> Iterator[Step]:
        budget = state.budget
        if not budget.home_restores:
            return
        for home in state.home_log:
            if home == state.home:
                continue
            after = _forget_looks(_lose_home(state))._replace(
                budget=budget._replace(home_restores=budget.home_restores - 1),
                home=home,
                home_restored=True,
                fence=0,
            )
            label = (
                f"home goes back to {len(home.ledger)} batches, "
                f"{len(home.claims)} claims, {len(home.noted)} noted"
            )
            yield fault(label, after)

    def _restores(self, state: State) -> Iterator[Step]:
        budget = state.budget
        if not budget.restores:
            return
        for number, former in enumerate(state.log):
            for participant in former:
                if participant == state.participants[number]:
                    continue
                fewer = budget._replace(restores=budget.restores - 1)
                after = put_participant(state, number, participant)._replace(
                    budget=fewer, restored=state.restored | {number}
                )
                after = _forget_looks(self._lose_server(after, number))
                label = (
                    f"participant {number} goes back to {len(participant.markers)} "
                    f"markers, {len(participant.prepared)} prepared"
                )
                yield fault(label, after)


def _lose_home(state: State) -> State:
    """What was open at home is rolled back, what was staged there is gone."""
    return state._replace(
        drivers=tuple(
            d._replace(is_open=False, rows=(), dead=()) for d in state.drivers
        ),
        staged=frozenset(r for r in state.staged if r.database not in {HOME, DEAD}),
    )


def _forget_looks(state: State) -> State:
    """Who has looked before a failover, or was stopped, is to look again."""
    drivers = tuple(driver._replace(looks=False) for driver in state.drivers)
    return state._replace(drivers=drivers, halted="")


def _in_doubt(state: State) -> bool:
    return bool(
        state.orders
        or state.sent
        or any(p.prepared for p in state.participants)
        or state.home.decided - state.home.noted
    )
