"""Breadth-first search over every state, with the shortest trace to a broken rule.

I9 is a rule about the graph: from every state that was reached, steps that need no
fault lead to an end. It is checked backwards from the ends once all states are known.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from tallyweir.sinks.tests.model.changes import Step
from tallyweir.sinks.tests.model.faults import Faults
from tallyweir.sinks.tests.model.invariants import broken_rule, is_end
from tallyweir.sinks.tests.model.processes import Processes
from tallyweir.sinks.tests.model.rules import Rules, installed
from tallyweir.sinks.tests.model.states import Home, Participant, State, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an exploration came to."""

    world: World
    states: int
    transitions: int
    ends: int
    halts: int
    #: The broken rule, or empty.
    rule: str
    #: Labels of the steps that lead there.
    trace: tuple[str, ...]

    def __str__(self) -> str:
        spent = {kind: n for kind, n in self.world.budget._asdict().items() if n}
        summary = (
            f"{self.world.name}: {self.states} states, {self.transitions} transitions, "
            f"{self.ends} ends of which {self.halts} halts; "
            f"{self.world.batches} batches, {spent}"
        )
        if not self.rule:
            return summary
        steps = [f"{n:3} {label}" for n, label in enumerate(self.trace, start=1)]
        return "\n".join([summary, f"BROKEN {self.rule}", *steps])


class _Graph:
    """States in the order in which they were found, with the way to each."""

    def __init__(self) -> None:
        self.numbers: dict[State, int] = {}
        self.states: list[State] = []
        self.parents = array("q")
        self.labels: list[str] = []
        #: Pairs of a state and one that steps without a fault lead to.
        self.edges = array("q")

    def add(self, state: State, parent: int, label: str) -> int | None:
        """Return the number of a state that is new, None for a known one."""
        if state in self.numbers:
            return None
        number = len(self.states)
        self.numbers[state] = number
        self.states.append(state)
        self.parents.append(parent)
        self.labels.append(label)
        return number

    def trace(self, number: int) -> tuple[str, ...]:
        labels = []
        while self.parents[number] >= 0:
            labels.append(self.labels[number])
            number = self.parents[number]
        return tuple(reversed(labels))


def explore(
    world: World, rules: Rules | None = None, *, states_max: int = 5_000_000
) -> Found:
    """Visit every state of a world, or stop at the first that breaks a rule."""
    rules = rules or Rules()
    with installed(rules):
        return _Exploration(world, rules, states_max).run()


class _Exploration:
    def __init__(self, world: World, rules: Rules, states_max: int) -> None:
        self._world = world
        self._processes = Processes(world, rules)
        self._faults = Faults(self._processes)
        self._graph = _Graph()
        self._ends: list[int] = []
        self._halts = 0
        self._transitions = 0
        self._states_max = states_max

    def run(self) -> Found:
        graph = self._graph
        first = State(budget=self._world.budget, participants=(Participant(),) * 2)
        graph.add(_logged(first, first), -1, "")
        number = 0
        while number < len(graph.states):
            state = graph.states[number]
            for step in self._successors(state):
                self._transitions += 1
                after = _logged(state, step.state)
                fresh = graph.add(after, number, step.label)
                if not step.is_fault:
                    graph.edges.extend((number, graph.numbers[after]))
                if fresh is None:
                    continue
                rule = broken_rule(after, self._world)
                if rule:
                    return self._found(rule, fresh)
                if is_end(after, self._world):
                    self._ends.append(fresh)
                    self._halts += bool(after.halted)
            number += 1
            assert number < self._states_max, f"{self._world.name} has too many states"
        stuck = self._stuck()
        if stuck is not None:
            return self._found("I9: from here nothing leads to an end", stuck)
        return self._found("", 0)

    def _successors(self, state: State) -> Iterator[Step]:
        yield from self._processes.steps(state)
        yield from self._processes.servers.steps(state)
        yield from self._faults.of(state)

    def _found(self, rule: str, number: int) -> Found:
        return Found(
            world=self._world,
            states=len(self._graph.states),
            transitions=self._transitions,
            ends=len(self._ends),
            halts=self._halts,
            rule=rule,
            trace=self._graph.trace(number),
        )

    def _stuck(self) -> int | None:
        """The first state found from which no end can be reached without a fault."""
        before: dict[int, list[int]] = {}
        edges = self._graph.edges
        for position in range(0, len(edges), 2):
            before.setdefault(edges[position + 1], []).append(edges[position])
        reached = bytearray(len(self._graph.states))
        waiting = list(self._ends)
        for number in waiting:
            reached[number] = 1
        while waiting:
            for number in before.get(waiting.pop(), ()):
                if not reached[number]:
                    reached[number] = 1
                    waiting.append(number)
        first = reached.find(0)
        return None if first < 0 else first


def _logged(former: State, state: State) -> State:
    """Keep what a database was, as long as it may still be taken back to it."""
    if not state.budget.home_restores:
        home_log: tuple[Home, ...] = ()
    elif former.home == state.home and state.home_log:
        home_log = state.home_log
    else:
        home_log = (*state.home_log, state.home)
    if not state.budget.restores:
        log: tuple[tuple[Participant, ...], ...] = ()
    else:
        log = tuple(
            kept if kept and kept[-1] == now else (*kept, now)
            for kept, now in zip(state.log or ((), ()), state.participants, strict=True)
        )
    return state._replace(home_log=home_log, log=log)
