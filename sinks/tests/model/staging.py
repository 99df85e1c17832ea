"""Phase one in the model: what tasks stage, and what publishing moves."""

from __future__ import annotations

from collections.abc import Iterator

from sinks.tests.model.changes import put
from sinks.tests.model.rules import Rules
from sinks.tests.model.states import DEAD, HOME, Driver, Staged, State, World

#: The attempts that voted, each with its task.
Votes = tuple[tuple[int, int], ...]


class Staging:
    """The staging tables of every database."""

    def __init__(self, world: World, rules: Rules) -> None:
        self._world = world
        self._rules = rules

    def stage(
        self, state: State, index: int, dead: tuple[int, ...]
    ) -> tuple[State, Votes]:
        """Both tasks stage and vote."""
        driver = state.drivers[index]
        votes = tuple((task, driver.attempts + 1 + task) for task in (0, 1))
        rows = [
            row
            for task, attempt in votes
            for row in self._rows(driver, task, attempt, dead)
        ]
        after = driver._replace(attempts=driver.attempts + 2)
        return put(state._replace(staged=state.staged.union(rows)), index, after), votes

    def stage_oddly(
        self, state: State, index: int, dead: tuple[int, ...]
    ) -> Iterator[tuple[str, State, Votes]]:
        """Stage with every outcome that the budget allows."""
        plain, votes = self.stage(state, index, dead)
        yield "", plain, votes
        budget = state.budget
        if budget.votes:
            fewer = plain._replace(budget=budget._replace(votes=budget.votes - 1))
            yield " (a vote is lost)", fewer, votes[:1]
            yield " (a vote is counted twice)", fewer, (*votes, votes[0])
        if not budget.zombies:
            return
        # Task 0 was tried before: that attempt copies late, or copied and did not vote.
        driver = state.drivers[index]
        zombie = driver.attempts + 1
        tried = put(state, index, driver._replace(attempts=zombie))
        after, votes = self.stage(tried, index, dead)
        after = after._replace(budget=budget._replace(zombies=budget.zombies - 1))
        copies = tuple(self._rows(driver, 0, zombie, dead))
        staged = after._replace(staged=after.staged.union(copies))
        yield " (an attempt's vote is lost, a second one votes)", staged, votes
        later = after._replace(copies=tuple(sorted((*after.copies, *copies))))
        yield " (an attempt hangs, a second one votes)", later, votes

    def _rows(
        self, driver: Driver, task: int, attempt: int, dead: tuple[int, ...]
    ) -> Iterator[Staged]:
        epoch = driver.claim[0]
        for record in self._world.records(driver.position, driver.until):
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
