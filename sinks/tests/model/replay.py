"""Runs production code one port call at a time.

A driver's operation (``Publisher.start``, ``Coordinator.run_batch``,
``Publisher.sweep``) and the resolver's ``resolve`` are ordinary functions that call
ports. To stop them between any two calls, and to have a state that can be compared,
each step runs the function anew on the answers that it got so far, up to the first call
that has none. So what a process knows is the list of its answers, and nothing in the
model repeats what the protocol does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.protocol.identity import BatchKey, Epoch, SparkBatchId
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.ports import BatchPlan, RowsRejectedError
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.testing.planned_batches import PLANNED_AT_US
from tallyweir.sinks.tests.model.rules import Rules
from tallyweir.sinks.tests.model.scripted_ports import (
    Asked,
    Names,
    Script,
    ScriptedBranches,
    ScriptedHome,
    ScriptedLedger,
    ScriptedStage,
    ScriptedStageKeys,
    WaitingError,
    raised_by,
    ranges_of,
)
from tallyweir.sinks.tests.model.states import Raised, World


class Ended(NamedTuple):
    """The function returned, or raised."""

    error: Raised | None
    tries: int = 0
    unsettled: bool = False


class Replay:
    """Answers what a process does next; remembers what it found out before."""

    def __init__(self, world: World, rules: Rules) -> None:
        self._world = world
        self._rules = rules
        self._participants = range(2)
        self.names = Names(rules)
        self._known: dict[tuple[Any, ...], Asked | Ended] = {}

    def resolver(self, answers: tuple[Any, ...]) -> Asked | Ended:
        """A run of the service: production's ``resolve``, at rest for nobody."""
        key = ("resolver", answers)
        if key not in self._known:
            script = Script(answers)
            databases = {
                f"p{n}": ScriptedBranches(script, self.names, n)
                for n in self._participants
            }
            ledger = ScriptedLedger(script, self.names)
            self._known[key] = _run(
                script, lambda: self._rules.resolve(ledger, databases, at_rest=None)
            )
        return self._known[key]

    def driver(
        self,
        operation: str,
        claim: tuple[int, int],
        batch: tuple[int, int, int],
        publisher: tuple[int, bool],
        answers: tuple[Any, ...],
    ) -> Asked | Ended:
        """An operation of a driver whose publisher has done ``publisher`` before."""
        key = (operation, claim, batch, publisher, answers)
        if key not in self._known:
            self._known[key] = self._drive(*key)
        return self._known[key]

    def _drive(
        self,
        operation: str,
        claim: tuple[int, int],
        batch: tuple[int, int, int],
        former: tuple[int, bool],
        answers: tuple[Any, ...],
    ) -> Asked | Ended:
        script = Script(answers)
        home = ScriptedHome(script, self.names, claim)
        publisher = self._rules.publisher(
            home, [ScriptedBranches(script, self.names, n) for n in self._participants]
        )
        publisher._attempts, publisher._unsettled = former
        match operation:
            case "start":
                found = _run(script, publisher.start)
            case "sweep":
                found = _run(script, publisher.sweep)
            case _:
                found = _run(script, self._batch(script, publisher, claim, batch))
        if isinstance(found, Ended):
            return found._replace(
                tries=publisher._attempts, unsettled=publisher._unsettled
            )
        return found

    def _batch(
        self,
        script: Script,
        publisher: Publisher,
        claim: tuple[int, int],
        batch: tuple[int, int, int],
    ) -> Callable[[], object]:
        """What runs a batch, or a tick if there are no offsets in it."""
        plan = _plan(claim[0], *batch)
        if plan.ranges:
            coordinator = self._rules.coordinator(publisher)
            stage = ScriptedStage(script, self._world)
            return lambda: coordinator.run_batch(plan, stage)
        stage_keys = ScriptedStageKeys(script, self._world)
        coordinator = self._rules.coordinator(publisher, stage_keys)
        return lambda: coordinator.run_tick(plan)


def _run(script: Script, operation: Callable[[], object]) -> Asked | Ended:
    try:
        operation()
    except WaitingError:
        assert script.asked is not None
        return script.asked
    except (TallyweirError, RowsRejectedError) as error:
        return Ended(raised_by(error))
    return Ended(None)


def _plan(epoch: int, first: int, until: int, after: int) -> BatchPlan:
    return BatchPlan(
        key=BatchKey(epoch=Epoch(epoch), spark_batch_id=SparkBatchId(first)),
        ranges=ranges_of(first, until),
        watermark_us=None,
        after_sequence=SequenceNumber(after),
        clocks={},
        planned_at_us=PLANNED_AT_US,
        topic_ids={"events": "id"},
    )
