"""Phase one in the model: what tasks stage, and what publishing moves."""

from __future__ import annotations

from collections.abc import Iterator

from tallyweir.sinks.tests.model.changes import put
from tallyweir.sinks.tests.model.rules import Rules
from tallyweir.sinks.tests.model.states import (
    DEAD,
    FIRED,
    HOME,
    Driver,
    Staged,
    State,
    Voted,
    World,
)


class Staging:
    """The staging tables of every database."""

    def __init__(self, world: World, rules: Rules) -> None:
        self._world = world
        self._rules = rules

    def stage(
        self, state: State, index: int, dead: tuple[int, ...]
    ) -> tuple[State, Voted]:
        """Both tasks stage and vote."""
        driver = state.drivers[index]
        votes = tuple((task, driver.attempts + 1 + task) for task in (0, 1))
        records = self._records(state, driver)
        rows = [
            row
            for task, attempt in votes
            for row in self._rows(records, driver.claim[0], task, attempt, dead)
        ]
        after = driver._replace(attempts=driver.attempts + 2)
        staged = put(state._replace(staged=state.staged.union(rows)), index, after)
        return staged, Voted(votes, records)

    def stage_ahead(self, state: State, index: int) -> State:
        """The tasks of the next batch stage and vote, if there is one to stage."""
        driver = state.drivers[index]
        until = driver.until + 1
        if until > self._world.batches:
            return state
        following = driver._replace(position=driver.until, until=until)
        staged, voted = self.stage(put(state, index, following), index, ())
        attempts = staged.drivers[index].attempts
        return put(staged, index, driver._replace(ahead=voted, attempts=attempts))

    def forget(self, state: State, driver: Driver) -> State:
        """Empty the set of tables that a published batch was staged in."""
        end = 2 * driver.until
        return state._replace(
            staged=frozenset(
                row
                for row in state.staged
                if row.epoch != driver.claim[0] or end <= row.record < FIRED
            )
        )

    def stage_oddly(
        self, state: State, index: int, dead: tuple[int, ...]
    ) -> Iterator[tuple[str, State, Voted]]:
        """Stage with every outcome that the budget allows."""
        plain, voted = self.stage(state, index, dead)
        yield "", plain, voted
        budget = state.budget
        if budget.votes:
            fewer = plain._replace(budget=budget._replace(votes=budget.votes - 1))
            votes, records = voted
            yield " (a vote is lost)", fewer, Voted(votes[:1], records)
            twice = Voted((*votes, votes[0]), records)
            yield " (a vote is counted twice)", fewer, twice
        if not budget.zombies:
            return
        # Task 0 was tried before: that attempt copies late, or copied and did not vote.
        driver = state.drivers[index]
        zombie = driver.attempts + 1
        tried = put(state, index, driver._replace(attempts=zombie))
        after, voted = self.stage(tried, index, dead)
        after = after._replace(budget=budget._replace(zombies=budget.zombies - 1))
        copies = tuple(self._rows(voted.records, driver.claim[0], 0, zombie, dead))
        staged = after._replace(staged=after.staged.union(copies))
        yield " (an attempt's vote is lost, a second one votes)", staged, voted
        later = after._replace(copies=tuple(sorted((*after.copies, *copies))))
        yield " (an attempt hangs, a second one votes)", later, voted

    def _records(self, state: State, driver: Driver) -> tuple[int, ...]:
        """What the tasks of a batch are given; those of a tick, what is due."""
        if driver.until > driver.position:
            return self._world.records(driver.position, driver.until)
        return tuple(FIRED + record for record in state.home.timers)

    def _rows(
        self,
        records: tuple[int, ...],
        epoch: int,
        task: int,
        attempt: int,
        dead: tuple[int, ...],
    ) -> Iterator[Staged]:
        for record in records:
            if record % 2 != task:
                continue
            if record in dead:
                yield Staged(DEAD, epoch, attempt, record)
                continue
            for database in (HOME, 0, 1):
                if self._world.goes_to(record, database):
                    yield Staged(database, epoch, attempt, record)

    def moved(
        self, state: State, database: int, epoch: int, attempts: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Rows to move; one that no vote covers is marked, for the invariants."""
        there = sorted(
            row
            for row in state.staged
            if row.epoch == epoch and row.database == database
        )
        return tuple(
            row.record if row.attempt in attempts else -row.record - 1
            for row in self._rules.voted_rows(there, attempts)
        )

    def clear(self, state: State, epoch: int, databases: tuple[int, ...]) -> State:
        if not self._rules.clears_staging:
            return state
        staged = frozenset(
            row
            for row in state.staged
            if row.epoch != epoch or row.database not in databases
        )
        return state._replace(staged=staged)
