"""The home database in the model: each of its transactions is one step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tallyweir.sinks.protocol.decisions import PublishDecision
from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.protocol.identity import BatchKey, Epoch, SparkBatchId
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.tests.model.changes import (
    broken,
    fenced,
    newest_claim,
    newest_decided,
    newest_sequence,
    put,
)
from tallyweir.sinks.tests.model.rules import Rules
from tallyweir.sinks.tests.model.scripted_ports import (
    TOPIC,
    Names,
    raised_by,
    ranges_of,
)
from tallyweir.sinks.tests.model.staging import Staging
from tallyweir.sinks.tests.model.states import (
    DEAD,
    FIRED,
    HOME,
    Decided,
    Driver,
    Gid,
    Home,
    Raised,
    State,
    World,
)

#: Outcomes of a call: what is added to the label, the state after it, the answer.
Outcomes = Iterator[tuple[str, State, Any]]


class HomeServer:
    """Answers what drivers and resolver ask of the home database."""

    def __init__(
        self, world: World, rules: Rules, names: Names, staging: Staging
    ) -> None:
        self._world = world
        self._rules = rules
        self._names = names
        self._staging = staging

    def is_locked(self, state: State) -> bool:
        return self._rules.publishing_locks and any(d.is_open for d in state.drivers)

    def read_in_doubt(self, state: State, gids: tuple[Gid, ...]) -> Outcomes:
        if self._rules.reading_locks:
            if self.is_locked(state):
                return
            state = fenced(state)
        decided = state.home.decided
        unresolved = tuple(sorted(decided - state.home.noted))
        same = self._names.outside
        among = {same(gid) for gid in decided}
        found = tuple(gid for gid in gids if same(gid) in among)
        yield "", state, (newest_claim(state.home), found, unresolved)

    def open(self, state: State, index: int) -> Outcomes:
        if self.is_locked(state):
            return
        driver = state.drivers[index]
        home = state.home
        newest = newest_claim(home)
        nonce = self._rules.claim_of(*newest).nonce
        if self._rules.publishing_locks:
            state = fenced(state)
        try:
            decision = self._rules.decide_publish(
                key=BatchKey(
                    epoch=Epoch(driver.claim[0]),
                    spark_batch_id=SparkBatchId(driver.position),
                ),
                newest_epoch=Epoch(newest[0]),
                claim_kept=nonce == self._rules.claim_of(*driver.claim).nonce,
                stored={TOPIC: 2 * home.offset},
                ranges=ranges_of(driver.position, driver.until),
                last_sequence=SequenceNumber(newest_sequence(home)),
                after_sequence=SequenceNumber(driver.after),
            )
        except TallyweirError as error:
            yield "", state, raised_by(error)
            return
        if decision is PublishDecision.ALREADY_COMMITTED:
            yield "", state, (decision.value, 0, ())
            return
        sequence = newest_sequence(home) + 1
        opened = put(state, index, driver._replace(is_open=True))
        yield "", opened, (decision.value, sequence, newest_decided(home))

    def move_rows(
        self, state: State, index: int, rows: int, dead: int, attempts: tuple[int, ...]
    ) -> tuple[State, object]:
        driver = state.drivers[index]
        if not driver.is_open:
            return state, Raised("retryable", "POSTGRES_UNAVAILABLE")
        moved = self._staging.moved(state, HOME, driver.claim[0], attempts)
        buried = self._staging.moved(state, DEAD, driver.claim[0], attempts)
        if self._rules.counts_moved and (len(moved), len(buried)) != (rows, dead):
            return state, Raised("retryable", "STAGED_ROWS_MISSING")
        return put(state, index, driver._replace(rows=moved, dead=buried)), None

    def commit(self, state: State, index: int, gids: tuple[Gid, ...]) -> Outcomes:
        driver = state.drivers[index]
        unknown = Raised("unknown", "COMMIT_UNKNOWN")
        if not driver.is_open:
            yield "", state, unknown
            return
        shut = driver._replace(is_open=False, rows=(), dead=())
        done = put(self._decide(state, driver, gids), index, shut)
        yield "", done, None
        if state.budget.losses:
            lost = state.budget._replace(losses=state.budget.losses - 1)
            undone = put(state, index, shut)
            yield " (not done, answer lost)", undone._replace(budget=lost), unknown
            yield " (done, answer lost)", done._replace(budget=lost), unknown

    def _decide(self, state: State, driver: Driver, gids: tuple[Gid, ...]) -> State:
        home = state.home
        if driver.claim not in home.claims or driver.claim[1] < state.fence:
            state = broken(state, f"I8: the stale claim {driver.claim} decides")
        batch = Decided(
            sequence=newest_sequence(home) + 1,
            first=driver.position,
            until=driver.until,
            claim=driver.claim[1],
            gids=gids if self._rules.lists_branches else (),
        )
        offset = driver.until if self._rules.advances else home.offset
        return state._replace(
            home=home._replace(
                offset=offset,
                ledger=(*home.ledger, batch),
                rows=tuple(sorted((*home.rows, *driver.rows))),
                dead=tuple(sorted((*home.dead, *driver.dead))),
                timers=self._timers(home, driver),
            )
        )

    def _timers(self, home: Home, driver: Driver) -> tuple[int, ...]:
        """What is due after a batch: what its records set, less what has fired."""
        if not self._world.ticks:
            return ()
        fired = {row - FIRED for row in driver.rows if self._rules.forgets_fired}
        is_set = [row for row in driver.rows if 0 <= row < FIRED]
        return tuple(sorted({*home.timers, *is_set} - fired))

    def note_committed(self, state: State, gids: tuple[Gid, ...]) -> State:
        """Show readers the branches that were seen committed."""
        noted = state.home.noted | (state.home.decided & set(gids))
        return state._replace(home=state.home._replace(noted=noted))
