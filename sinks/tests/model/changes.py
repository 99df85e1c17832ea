"""What steps are made of: small changes of a state, and questions to it."""

from __future__ import annotations

from typing import NamedTuple

from tallyweir.sinks.tests.model.states import (
    Driver,
    Gid,
    Home,
    Order,
    Participant,
    Raised,
    Sent,
    State,
)

#: Errors that say that databases disagree.
DISAGREEMENTS = frozenset({"PARTICIPANT_AHEAD", "PARTICIPANT_BEHIND", "BRANCH_LOST"})

#: Errors that need no restore to be right.
_EXPECTED = frozenset({"CONSERVATION_BROKEN", "POSTGRES_REFUSED", "PREPARE_REFUSED"})


class Step(NamedTuple):
    """One thing that may happen."""

    label: str
    state: State
    #: Whether it needs a fault, so that it cannot be relied on to happen.
    is_fault: bool = False


def fault(label: str, state: State) -> Step:
    """Make a step that nobody can rely on."""
    return Step(label, state, is_fault=True)


def disagree(state: State) -> bool:
    """Tell whether a participant's history is not home's."""
    decided = state.home.decided
    for number, participant in enumerate(state.participants):
        own = {gid for gid in decided if gid.participant == number}
        markers = set(participant.markers)
        prepared = {gid for gid, _ in participant.prepared}
        if not markers <= own or not own <= markers | prepared:
            return True
    return False


def judge(state: State, error: Raised) -> State:
    """Nobody may be alarmed while nothing was restored, or while all agree."""
    if error.kind == "fenced" or error.code in _EXPECTED:
        return state
    # Who commits a branch learns from its loss that home forgot the decision meanwhile.
    is_explained = error.code == "BRANCH_LOST" and state.home_restored
    if error.code in DISAGREEMENTS and not disagree(state) and not is_explained:
        return broken(state, f"I9: false alarm {error.code}")
    if state.home_restored or state.restored:
        return state
    return broken(state, f"I9: false alarm {error.code}")


def broken(state: State, rule: str) -> State:
    """Note the first rule that a step breaks."""
    return state if state.broken else state._replace(broken=rule)


def fenced(state: State) -> State:
    """Note that the newest claim was seen under the lock."""
    return state._replace(fence=max(state.fence, newest_claim(state.home)[1]))


def newest_claim(home: Home) -> tuple[int, int]:
    """Find it; (0, 0) when there is none."""
    return max(home.claims, default=(0, 0))


def newest_sequence(home: Home) -> int:
    """Number the newest batch; 0 when there is none."""
    return home.ledger[-1].sequence if home.ledger else 0


def newest_decided(home: Home) -> tuple[Gid, ...]:
    """Find the newest decision of each branch."""
    newest: dict[int, Gid] = {}
    for batch in home.ledger:
        for gid in batch.gids:
            newest[gid.participant] = gid
    return tuple(sorted(newest.values()))


def newest_marker(participant: Participant) -> Gid | None:
    """Find the newest committed branch; None when there is none."""
    return max(participant.markers, key=lambda gid: gid.sequence, default=None)


def has_marker(state: State, gid: Gid) -> bool:
    """Tell whether a branch was committed in its database."""
    return gid in state.participants[gid.participant].markers


def is_rejection(answer: object) -> bool:
    """Tell whether a call was answered by rows that a table refuses."""
    return isinstance(answer, Raised) and answer.kind == "rejected"


def begin_prepare(  # noqa: PLR0913, PLR0917 - all of an order
    state: State,
    driver: Driver,
    gid: Gid,
    after: Gid | None,
    rows: int,
    attempts: tuple[int, ...],
) -> State:
    """A driver tells a branch's worker what to prepare."""
    order = Order(gid, after, driver.claim[1], rows, attempts)
    orders = sorted((*state.orders, order), key=lambda known: known.gid)
    return state._replace(orders=tuple(orders))


def prepare(state: State, sent: Sent) -> State:
    """A branch becomes prepared, unless its name is taken."""
    participant = state.participants[sent.gid.participant]
    if any(gid == sent.gid for gid, _ in participant.prepared):
        return state
    prepared = tuple(sorted((*participant.prepared, (sent.gid, sent.rows))))
    return put_branches(state, sent.gid, participant._replace(prepared=prepared))


def put_branches(state: State, gid: Gid, after: Participant) -> State:
    """Replace the participant that a branch is in."""
    return put_participant(state, gid.participant, after)


def put_participant(state: State, number: int, after: Participant) -> State:
    """Replace one participant."""
    participants = list(state.participants)
    participants[number] = after
    return state._replace(participants=tuple(participants))


def put(state: State, index: int, driver: Driver) -> State:
    """Replace one driver."""
    drivers = list(state.drivers)
    drivers[index] = driver
    return state._replace(drivers=tuple(drivers))


def without(state: State, index: int) -> State:
    """Take one driver away."""
    drivers = (*state.drivers[:index], *state.drivers[index + 1 :])
    return state._replace(drivers=drivers)


def index_of(state: State, claim: tuple[int, int]) -> int:
    """Find a driver by its claim."""
    return next(i for i, d in enumerate(state.drivers) if d.claim == claim)


def others(orders: tuple[Order, ...], order: Order) -> tuple[Order, ...]:
    """Leave one order out."""
    return tuple(other for other in orders if other != order)


def name_of(gid: Gid) -> str:
    """Write the name of a branch for a trace."""
    return (
        f"branch {gid.participant} of batch {gid.sequence}, "
        f"claim {gid.claim}, try {gid.attempt}"
    )
