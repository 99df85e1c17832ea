"""Drivers and the resolver in the model: what each of them does next.

Each step is atomic as the real thing is: one SQL transaction or statement, one PREPARE,
one COMMIT PREPARED, the insert of a claim apart from the lock that follows it. A call
that nobody else can see or disturb is made together with the one before.
"""

from __future__ import annotations

from collections.abc import Iterator

from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.protocol.identity import Epoch
from tallyweir.sinks.protocol.recovery import BrokerPosition, StoredPosition
from tallyweir.sinks.tests.model.changes import (
    DISAGREEMENTS,
    Step,
    begin_prepare,
    disagree,
    fenced,
    has_marker,
    index_of,
    is_rejection,
    judge,
    name_of,
    newest_claim,
    newest_decided,
    newest_marker,
    newest_sequence,
    put,
    without,
)
from tallyweir.sinks.tests.model.home_server import HomeServer, Outcomes
from tallyweir.sinks.tests.model.participant_servers import ParticipantServers
from tallyweir.sinks.tests.model.replay import Ended, Replay
from tallyweir.sinks.tests.model.rules import Rules
from tallyweir.sinks.tests.model.scripted_ports import TOPIC, Asked, raised_by
from tallyweir.sinks.tests.model.staging import Staging
from tallyweir.sinks.tests.model.states import (
    DEAD,
    HOME,
    Driver,
    Gid,
    Raised,
    State,
    World,
)


class Processes:
    """Finds the next steps of the processes of one world under some rules."""

    def __init__(self, world: World, rules: Rules) -> None:
        self._world = world
        self._rules = rules
        self._replay = Replay(world, rules)
        names = self._replay.names
        self._staging = Staging(world, rules)
        self._home = HomeServer(world, rules, names, self._staging)
        self.servers = ParticipantServers(
            world, rules, names, self._staging, self._advance
        )

    def steps(self, state: State) -> Iterator[Step]:
        """What drivers and resolver do next, with every outcome."""
        for index, driver in enumerate(state.drivers):
            yield from self._driver_steps(state, index, driver)
        if state.resolver is not None:
            asked = self._replay.resolver(state.resolver)
            assert isinstance(asked, Asked), "a run that ended was put to rest"
            for note, after, answer in self._outcomes(state, None, asked):
                label = f"resolver: {say(asked)}{note}"
                settled = self._advance_resolver(
                    after._replace(resolver=(*state.resolver, answer))
                )
                yield Step(label, settled, is_fault=bool(note))

    def start_driver(self, state: State) -> State:
        """A new driver inserts its claim."""
        return self._claim(state, Driver(claim=(0, 0)))

    def start_resolver(self, state: State) -> State:
        """The resolver begins a run."""
        return self._advance_resolver(state._replace(resolver=()))

    def _claim(self, state: State, driver: Driver) -> State:
        epoch = self._rules.next_epoch([epoch for epoch, _ in state.home.claims])
        number = state.claims + 1
        claims = (*state.home.claims, (epoch, number))
        return state._replace(
            home=state.home._replace(claims=claims),
            claims=number,
            drivers=(
                *state.drivers,
                Driver(claim=(epoch, number), looks=driver.looks),
            ),
            broken=state.broken
            or (
                "I9: drivers start over for ever"
                if number > self._world.claims_max
                else ""
            ),
        )

    def _driver_steps(self, state: State, index: int, driver: Driver) -> Iterator[Step]:
        name = f"driver {driver.claim[1]}"
        match driver.phase:
            case "lock":
                if not self._home.is_locked(state) or not self._rules.claiming_locks:
                    after = self._confirm(state, index)
                    yield Step(f"{name}: has had the lock", after)
            case "progress":
                yield Step(f"{name}: reads progress", self._resume(state, index))
            case "plan":
                yield Step(f"{name}: plans", self._plan(state, driver.claim))
            case "again":
                if not any(o.owner == driver.claim[1] for o in state.orders):
                    yield Step(f"{name}: starts over", self._again(state, index))
            case "done":
                yield from self._rest(state, index)
            case _:
                asked = self._ask(driver)
                assert isinstance(asked, Asked), "an operation that ended was left"
                yield from self._stage_ahead(state, index)
                for note, after, answer in self._outcomes(state, index, asked):
                    label = f"{name}: {say(asked)}{note}"
                    settled = self._answer(after, driver.claim, answer)
                    yield Step(label, settled, is_fault=bool(note))

    def _stage_ahead(self, state: State, index: int) -> Iterator[Step]:
        """The next batch is staged beside whatever is done with this one."""
        driver = state.drivers[index]
        is_voted = driver.phase == "batch" and bool(driver.answers)
        if self._world.ahead and is_voted and driver.ahead is None:
            after = self._staging.stage_ahead(state, index)
            if after != state:
                yield Step(f"driver {driver.claim[1]}: stages ahead", after)

    def _confirm(self, state: State, index: int) -> State:
        driver = state.drivers[index]
        if self._rules.claiming_locks:
            state = fenced(state)
        state = self._staging.clear(state, driver.claim[0], (HOME, DEAD))
        return self._advance(put(state, index, driver._replace(phase="start")))

    def _resume(self, state: State, index: int) -> State:
        driver = state.drivers[index]
        end = 2 * self._world.batches
        stored = {
            TOPIC: StoredPosition(topic_id="id", next_offset=2 * state.home.offset)
        }
        broker = {
            TOPIC: BrokerPosition(topic_id="id", log_start_offset=0, log_end_offset=end)
        }
        position = self._rules.decide_start(stored, broker)[TOPIC] // 2
        return self._plan(
            put(state, index, driver._replace(position=position)), driver.claim
        )

    def _plan(self, state: State, claim: tuple[int, int]) -> State:
        """A tick comes before the next batch, where timers are due."""
        index = index_of(state, claim)
        driver = state.drivers[index]
        if driver.ahead is not None:
            return self._take_up(state, index)
        driver = driver._replace(after=newest_sequence(state.home))
        if state.home.timers:
            until = driver.position
        elif driver.position >= self._world.batches:
            return put(state, index, driver._replace(phase="done"))
        else:
            takes_all = self._world.wide and driver.claim[1] > 1
            until = self._world.batches if takes_all else driver.position + 1
        return self._advance(
            put(state, index, driver._replace(phase="batch", until=until))
        )

    def _take_up(self, state: State, index: int) -> State:
        """Go on with the batch that is staged, planned upon the one before it."""
        driver = state.drivers[index]
        following = driver._replace(
            phase="batch",
            until=driver.position + 1,
            after=driver.after + 1,
            answers=(driver.ahead,),
            ahead=None,
        )
        return self._advance(put(state, index, following))

    def _again(self, state: State, index: int) -> State:
        driver = state.drivers[index]
        newest = newest_claim(state.home)
        if self._rules.checks_before_claim:
            try:
                self._rules.check_epoch(Epoch(driver.claim[0]), Epoch(newest[0]))
            except TallyweirError as error:
                return self._stop(state, index, raised_by(error))
        return self._claim(without(state, index), driver)

    def _rest(self, state: State, index: int) -> Iterator[Step]:
        driver = state.drivers[index]
        name = f"driver {driver.claim[1]}"
        if any(p.prepared for p in state.participants):
            after = put(state, index, driver._replace(phase="sweep"))
            yield Step(f"{name}: sweeps", self._advance(after))
        if (state.home_restored or state.restored) and not driver.looks:
            after = self._claim(without(state, index), driver._replace(looks=True))
            yield Step(f"{name}: is started anew", after)

    def _ask(self, driver: Driver) -> Asked | Ended:
        return self._replay.driver(
            driver.phase,
            driver.claim,
            (driver.position, driver.until, driver.after),
            (driver.tries, driver.unsettled),
            driver.answers,
        )

    def _answer(self, state: State, claim: tuple[int, int], answer: object) -> State:
        index = index_of(state, claim)
        driver = state.drivers[index]
        return self._advance(
            put(state, index, driver._replace(answers=(*driver.answers, answer)))
        )

    def _advance(self, state: State) -> State:
        """Make the calls that nobody else can see, and end what has ended."""
        for driver in state.drivers:
            if driver.phase not in {"start", "batch", "sweep"}:
                continue
            asked = self._ask(driver)
            if isinstance(asked, Ended):
                return self._advance(self._end(state, driver, asked))
            after = self._alone(state, driver, asked)
            if after is not None:
                state, answer = after
                return self._answer(state, driver.claim, answer)
        return state

    def _advance_resolver(self, state: State) -> State:
        assert state.resolver is not None
        while isinstance(asked := self._replay.resolver(state.resolver), Asked):
            if asked.call != "has_marker":
                return state
            answer = has_marker(state, *asked.arguments)
            state = state._replace(resolver=(*state.resolver, answer))
            assert state.resolver is not None
        state = state._replace(resolver=None)
        if asked.error is not None:
            return judge(state, asked.error)
        return state

    def _end(self, state: State, driver: Driver, ended: Ended) -> State:
        index = index_of(state, driver.claim)
        if ended.error is not None and ended.error.kind in {"retryable", "unknown"}:
            if driver.ahead is not None and not self._rules.starts_over:
                skipped = driver._replace(position=driver.until, inbox=())
                return self._take_up(put(state, index, skipped), index)
            return put(
                state,
                index,
                driver._replace(phase="again", answers=(), inbox=(), is_open=False),
            )
        if ended.error is not None:
            return self._stop(
                state, index, self._name_fence(state, driver, ended.error)
            )
        if any(map(is_rejection, driver.answers)):
            # What it counts and files is not what the next one was planned upon.
            driver = driver._replace(ahead=None)
        driver = driver._replace(
            answers=(), inbox=(), tries=ended.tries, unsettled=ended.unsettled
        )
        match driver.phase:
            case "start":
                return put(state, index, driver._replace(phase="progress"))
            case "batch":
                state = self._staging.forget(state, driver)
                driver = driver._replace(phase="sweep", position=driver.until)
                return put(state, index, driver)
            case _:
                return put(state, index, driver._replace(phase="plan"))

    def _name_fence(self, state: State, driver: Driver, error: Raised) -> Raised:
        """As the bridge does for whatever goes wrong in a batch."""
        if driver.phase != "start" and newest_claim(state.home)[0] > driver.claim[0]:
            return Raised("fenced", "FENCED")
        return error

    def _stop(self, state: State, index: int, error: Raised) -> State:
        """A driver's process ends for good; someone may start another."""
        driver = state.drivers[index]
        state = judge(without(state, index), error)
        if driver.phase == "start" and error.code in DISAGREEMENTS and disagree(state):
            return state._replace(halted=error.code)
        return state

    def _alone(
        self, state: State, driver: Driver, asked: Asked
    ) -> tuple[State, object] | None:
        """Answer a call that nobody else can see; None for any other."""
        arguments = asked.arguments
        answered: tuple[State, object] | None = None
        match asked.call:
            case "await_quiet" | "await_prepared":
                answered = _await(state, driver, asked)
            case "begin_prepare":
                answered = begin_prepare(state, driver, *arguments), None
            case "create_tables":
                epoch = driver.claim[0]
                answered = self._staging.clear(state, epoch, arguments), None
            case "has_marker":
                answered = state, has_marker(state, *arguments)
            case "move_rows":
                index = index_of(state, driver.claim)
                answered = self._home.move_rows(state, index, *arguments)
            case "stage" if not (state.budget.zombies or state.budget.votes):
                index = index_of(state, driver.claim)
                answered = self._staging.stage(state, index, *arguments)
            case "close":
                shut = driver._replace(is_open=False, rows=(), dead=())
                answered = put(state, index_of(state, driver.claim), shut), None
        return answered

    # The calls that others see.

    def _outcomes(self, state: State, index: int | None, asked: Asked) -> Outcomes:
        """List how a call may end, with the state and the answer of each end."""
        arguments = asked.arguments
        if index is None:
            # The resolver's connections are like a driver's.
            return self._shared_outcomes(state, asked)
        match asked.call:
            case "open":
                return self._home.open(state, index)
            case "commit":
                return self._home.commit(state, index, *arguments)
            case "stage":
                return self._staging.stage_oddly(state, index, *arguments)
            case "await_quiet" | "await_prepared":
                return iter(())
        return self._shared_outcomes(state, asked)

    def _shared_outcomes(self, state: State, asked: Asked) -> Outcomes:
        arguments = asked.arguments
        match asked.call:
            case "list_prepared":
                yield "", state, self.servers.list_prepared(state, *arguments)
            case "roll_back_prepared":
                yield "", *self.servers.roll_back(state, *arguments)
            case "commit_prepared":
                yield from self.servers.commit_prepared(state, *arguments)
            case "newest_marker":
                yield "", state, newest_marker(state.participants[arguments[0]])
            case "read_decided":
                yield "", state, newest_decided(state.home)
            case "read_in_doubt":
                yield from self._home.read_in_doubt(state, *arguments)
            case "note_committed":
                yield "", self._home.note_committed(state, *arguments), None
            case _:
                raise NotImplementedError(asked.call)


def _await(state: State, driver: Driver, asked: Asked) -> tuple[State, object] | None:
    """Go on if what a driver waits for has happened."""
    index = index_of(state, driver.claim)
    if asked.call == "await_prepared":
        gid = asked.arguments[0]
        ends = [end for known, end in driver.inbox if known == gid]
        if not ends:
            return None
        inbox = tuple(item for item in driver.inbox if item[0] != gid)
        return put(state, index, driver._replace(inbox=inbox)), ends[0]
    number = asked.arguments[0]
    if any(
        order.owner == driver.claim[1] and order.gid.participant == number
        for order in state.orders
    ):
        return None
    inbox = tuple(item for item in driver.inbox if item[0].participant != number)
    return put(state, index, driver._replace(inbox=inbox)), None


def say(asked: Asked) -> str:
    """Write a call for a trace."""
    words = [
        f"({', '.join(name_of(gid) for gid in argument) or 'none'})"
        if isinstance(argument, tuple) and all(isinstance(g, Gid) for g in argument)
        else name_of(argument)
        if isinstance(argument, Gid)
        else str(argument)
        for argument in asked.arguments
    ]
    return " ".join([asked.call, *words])
