"""How a driver cleans up after a batch that one of its databases refused.

Also: what it makes of a database that went back in time under it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tallyweir.sinks import faultpoints
from tallyweir.sinks.faultpoints import FaultPoint, Side
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.errors import (
    DisagreementError,
    FencedError,
    OutcomeUnknownError,
    RetryableError,
)
from tallyweir.sinks.protocol.in_doubt import GlobalId
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import BatchPlan, RowsRejectedError
from tallyweir.sinks.protocol.publisher import Publisher
from tallyweir.sinks.protocol.votes import BatchTally, tally_votes
from tallyweir.sinks.testing.memory_home import MemoryDatabase
from tallyweir.sinks.testing.memory_participant import (
    MemoryParticipant,
    MemoryParticipantDatabase,
    ParticipantState,
)
from tallyweir.sinks.testing.memory_server import LostAnswer
from tallyweir.sinks.testing.memory_stage import MemoryStage
from tallyweir.sinks.testing.planned_batches import HOME, Position, plan_batch

_TP = TopicPartition("events", 0)
_BRANCHES = (HOME, "billing.0", "audit.0")


def _branch_of(position: Position) -> str:
    return _BRANCHES[position[1] % len(_BRANCHES)]


class _World:
    """A home and two other databases; a driver that has started."""

    def __init__(self, former: _World | None = None) -> None:
        if former is None:
            self.home_database = MemoryDatabase()
            self.others = [
                MemoryParticipantDatabase("billing", ["billing.0"]),
                MemoryParticipantDatabase("audit", ["audit.0"]),
            ]
        else:
            self.home_database, self.others = former.home_database, former.others
        self.home = self.home_database.new_driver()
        self.epoch = self.home.claim_epoch()
        self.participants = [
            MemoryParticipant(other, self.home.claim) for other in self.others
        ]
        self.publisher = Publisher(self.home, self.participants)
        self.publisher.start()
        self._stage = MemoryStage(
            self.home_database,
            others={other.name: other.staging for other in self.others},
            branch_of=_branch_of,
        )

    def succeeded(self) -> _World:
        """Return the same databases with a newer driver, which has started."""
        return _World(self)

    def stage(self) -> tuple[BatchPlan, BatchTally]:
        plan = plan_batch(self.home.read_progress(), {_TP: 3}, epoch=self.epoch)
        staged = self._stage(plan, ())
        tally = tally_votes(staged.votes, plan.ranges, records_read=staged.records_read)
        return plan, tally

    def publish(self) -> PublishOutcome:
        return self.publisher.publish(*self.stage(), restagings=0)

    def refuse(self, rows: set[Position]) -> None:
        """Make every result table refuse these rows, and no others."""
        self.home_database.refused = rows
        for other in self.others:
            other.refused = rows

    def publish_and_keep(self, point: FaultPoint) -> ParticipantState:
        """Publish; return what billing's standby held before a point was reached."""
        kept: list[ParticipantState] = []
        faultpoints.arm(
            point, lambda: kept.append(self.others[0].state), side=Side.BEFORE
        )
        assert PublishOutcome.COMMITTED is self.publish()
        faultpoints.disarm_all()
        return kept[0]

    def fail_over(self, standby: ParticipantState) -> None:
        """Have billing's standby take over; its staging is UNLOGGED, so it is empty."""
        self.others[0].crash()
        self.others[0].state = standby

    @property
    def billed(self) -> list[int]:
        """The offsets that billing shows."""
        return [offset for _, offset in self.others[0].state.rows]

    @property
    def prepared(self) -> int:
        """How many branches are prepared once every thread has done its work."""
        for participant in self.participants:
            participant.work()
        return sum(len(other.state.prepared) for other in self.others)


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    faultpoints.disarm_all()


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_a_refused_row_leaves_no_branch_prepared(offset: int) -> None:
    """Whichever database refuses it, also those at work are waited for."""
    world = _World()
    world.refuse({(_TP, offset)})
    with pytest.raises(RowsRejectedError):
        world.publish()
    assert 0 == world.prepared
    world.refuse(set())
    assert PublishOutcome.COMMITTED is world.publish()
    assert 0 == world.prepared


def test_what_could_not_be_rolled_back_is_settled_before_the_next_batch() -> None:
    """A database that fails even then does not make the next batch wait for locks."""
    world = _World()
    world.home_database.refused = {(_TP, 0)}
    plan, tally = world.stage()

    def fail_twice(call: str) -> None:
        # The first call is PREPARE, which goes well; the roll back does not.
        if call == "ROLLBACK PREPARED":
            world.others[0].calls_to_fail = 1
            world.others[0].interlude = lambda _: None

    world.others[0].interlude = fail_twice
    with pytest.raises(RowsRejectedError):
        world.publisher.publish(plan, tally, restagings=0)
    assert 1 == len(world.others[0].state.prepared)
    world.home_database.refused = set()
    assert PublishOutcome.COMMITTED is world.publish()
    assert 0 == world.prepared


def test_each_branch_is_prepared_before_the_decision_and_committed_after() -> None:
    """The order of a batch over three databases."""
    world = _World()
    seen: list[tuple[str, int, int]] = []
    for point in (
        FaultPoint.ALL_PREPARED,
        FaultPoint.DECISION_COMMITTED,
        FaultPoint.ALL_COMMITTED,
    ):
        for side in Side:

            def note(point: FaultPoint = point, side: Side = side) -> None:
                prepared = sum(len(other.state.prepared) for other in world.others)
                decided = len(world.home_database.state.decided)
                seen.append((f"{side.value} {point.value}", prepared, decided))

            faultpoints.arm(point, note, side=side)
    assert PublishOutcome.COMMITTED is world.publish()
    assert [
        ("before all_prepared", 0, 0),
        ("after all_prepared", 2, 0),
        ("before decision_committed", 2, 0),
        ("after decision_committed", 2, 2),
        ("before all_committed", 2, 2),
        ("after all_committed", 0, 2),
    ] == seen


def test_an_orphan_that_arrives_late_is_swept() -> None:
    """A server may act on PREPARE when its client is dead and its successor works."""
    world = _World()
    billing = world.others[0]
    billing.prepares_to_lose.append(LostAnswer.LATE)
    with pytest.raises(RetryableError):
        world.publish()
    successor = world.home_database.new_driver()
    successor.claim_epoch()
    participants = [MemoryParticipant(one, successor.claim) for one in world.others]
    publisher = Publisher(successor, participants)
    publisher.start()
    assert 0 == world.prepared
    billing.act_late()
    assert 1 == world.prepared

    publisher.sweep()

    assert 0 == world.prepared


def test_no_two_tries_share_a_name() -> None:
    """What is still on its way about one try must never meet another."""
    world = _World()
    names: list[GlobalId] = []

    def note() -> None:
        names.extend(gid for other in world.others for gid in other.state.prepared)

    faultpoints.arm(FaultPoint.ALL_PREPARED, note)
    world.home_database.answers_to_lose.append(LostAnswer.DROPPED)
    plan, tally = world.stage()
    with pytest.raises(OutcomeUnknownError):
        world.publisher.publish(plan, tally, restagings=0)
    assert PublishOutcome.COMMITTED is (
        world.publisher.publish(plan, tally, restagings=0)
    )
    assert 4 == len(set(names)) == len(names)


def test_a_database_that_went_back_to_a_prepared_branch_alarms_nobody() -> None:
    """All that it lacks is prepared and decided: it is committed, and work goes on."""
    world = _World()
    world.fail_over(world.publish_and_keep(FaultPoint.ALL_COMMITTED))
    with pytest.raises(RetryableError) as raised:
        world.publish()
    assert "HISTORY_MENDED" == raised.value.code
    assert 0 == world.prepared
    assert [1] == world.billed
    assert PublishOutcome.COMMITTED is world.publish()
    assert [1, 4] == world.billed


def test_a_database_that_went_back_further_stops_the_driver() -> None:
    """What is neither prepared nor committed stays lost, however often one looks."""
    world = _World()
    standby = world.publish_and_keep(FaultPoint.ALL_COMMITTED)
    assert PublishOutcome.COMMITTED is world.publish()
    world.fail_over(standby)
    with pytest.raises(DisagreementError) as raised:
        world.publish()
    assert "PARTICIPANT_BEHIND" == raised.value.code
    # What is decided is committed all the same; nothing came of the third batch.
    assert [1] == world.billed
    assert 0 == world.prepared
    assert 2 == len(world.home_database.state.ledger)


def test_a_database_that_goes_back_under_who_settles_is_looked_at_again() -> None:
    """Between the look for prepared branches and the comparison of histories."""
    world = _World()
    standby = world.publish_and_keep(FaultPoint.ALL_COMMITTED)

    def fail_over_once(call: str) -> None:
        if call == "reading the newest markers":
            world.others[0].interlude = lambda _: None
            world.fail_over(standby)

    world.others[0].interlude = fail_over_once
    world.publisher.settle()
    assert 0 == world.prepared
    assert [1] == world.billed


def test_who_is_superseded_while_it_looks_again_alarms_nobody() -> None:
    """The second difference is the work of its successor."""
    world = _World()
    standby = world.publish_and_keep(FaultPoint.ALL_COMMITTED)

    def be_superseded() -> None:
        world.others[0].interlude = lambda _: None
        assert PublishOutcome.COMMITTED is world.succeeded().publish()

    plan, tally = world.stage()
    events = [lambda: world.fail_over(standby), be_superseded]

    def happen(call: str) -> None:
        if call == "reading the newest markers":
            events.pop(0)()

    world.others[0].interlude = happen
    world.publisher.settle()
    assert [] == events
    assert [1, 4] == world.billed
    with pytest.raises(FencedError):
        world.publisher.publish(plan, tally, restagings=0)


def test_a_superseded_driver_does_not_take_its_successor_for_another_history() -> None:
    """Paused before it prepares, it finds the markers of a batch that is not its own.

    The server has ended its transaction, so the successor could publish.
    """
    world = _World()
    world.home_database.ends_lock_holders = True
    successors: list[_World] = []

    def be_paused(call: str) -> None:
        if call == "preparing a branch":
            world.others[0].interlude = lambda _: None
            successors.append(world.succeeded())
            assert PublishOutcome.COMMITTED is successors[0].publish()

    plan, tally = world.stage()
    world.others[0].interlude = be_paused
    with pytest.raises(RetryableError):
        world.publisher.publish(plan, tally, restagings=0)
    with pytest.raises(FencedError):
        world.publisher.publish(plan, tally, restagings=0)
    assert [1] == world.billed
