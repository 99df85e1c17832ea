"""What must hold in every state, and where the system may come to rest.

Numbers as in the table of the protocol's tests. I4 says that results and offsets of the
home database agree, and I1 that no database ever holds a record twice; a record is lost
if everything is at rest and it is not where it belongs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tallyweir.sinks.tests.model.changes import disagree, newest_claim
from tallyweir.sinks.tests.model.states import FIRED, Home, State, World


def broken_rule(state: State, world: World) -> str:
    """Name the rule that a state breaks; empty when it breaks none."""
    if state.broken:
        return state.broken
    rules = chain(
        _home_rules(state.home, world),
        _participants_rules(state, world),
        _rest_rules(state, world),
    )
    return next(rules, "")


def _home_rules(home: Home, world: World) -> Iterator[str]:
    rows = home.rows + home.dead
    if any(row < 0 for row in rows):
        yield "I2: home holds a row of an attempt that did not vote"
    if len(set(rows)) < len(rows):
        yield f"I1: home holds a record twice: {rows}"
    end = 0
    for number, batch in enumerate(home.ledger, start=1):
        if batch.sequence != number:
            yield f"I6: the ledger's numbers are {[b.sequence for b in home.ledger]}"
        if batch.first != end:
            yield f"I5: batch {number} begins at {batch.first}, not at {end}"
        end = batch.until
    if home.offset != end:
        yield f"I5: the ledger ends at {end}, the offsets at {home.offset}"
    if tuple(sorted(r for r in rows if r < FIRED)) != world.records(0, home.offset):
        yield f"I4: home holds {rows}, its offset is {home.offset}"
    timers = [*home.timers, *(row - FIRED for row in rows if row >= FIRED)]
    if world.ticks and sorted(timers) != [row for row in home.rows if row < FIRED]:
        yield f"I4: home holds {rows}, and {home.timers} are due"


def _participants_rules(state: State, world: World) -> Iterator[str]:
    decided = state.home.decided
    if state.home.noted - state.committed:
        yield f"V: {state.home.noted - state.committed} is shown, but not committed"
    for number, participant in enumerate(state.participants):
        rows = participant.rows
        if any(row < 0 for row in rows):
            yield f"I2: participant {number} holds a row that no vote covers"
        if len(set(rows)) < len(rows):
            yield f"I1: participant {number} holds a record twice: {rows}"
        if any(not world.goes_to(row, number) for row in rows):
            yield f"I1: participant {number} holds another's record: {rows}"
        markers = set(participant.markers)
        if not state.home_restored and markers - decided:
            yield f"I7: participant {number} committed {markers - decided} undecided"
        if number in state.restored:
            continue
        own = {gid for gid in decided if gid.participant == number}
        prepared = {gid for gid, _ in participant.prepared}
        if own - markers - prepared:
            yield f"I7: {own - markers - prepared} is decided and gone"


def _rest_rules(state: State, world: World) -> Iterator[str]:
    """Whoever says that all is done must be right."""
    if not is_at_rest(state, world):
        return
    for number, participant in enumerate(state.participants):
        wanted = tuple(
            record
            for record in world.records(0, state.home.offset)
            if record not in state.home.dead and world.goes_to(record, number)
        )
        if world.ticks:
            wanted += tuple(FIRED + record for record in wanted)
        if participant.rows != wanted:
            yield f"I1: participant {number} holds {participant.rows}, not {wanted}"


def is_at_rest(state: State, world: World) -> bool:
    """All is published and nothing is in doubt, as far as anyone can see.

    After a failover only a driver that was started since has looked.
    """
    # A driver that has nothing to publish does not learn that it was superseded.
    if not state.drivers or any(driver.phase != "done" for driver in state.drivers):
        return False
    if state.drivers[-1].claim != newest_claim(state.home):
        return False
    was_restored = bool(state.home_restored or state.restored)
    return (
        (state.drivers[-1].looks or not was_restored)
        and state.home.offset == world.batches
        and not state.home.timers
        and state.resolver is None
        and not (state.orders or state.sent or state.copies)
        and not any(participant.prepared for participant in state.participants)
    )


def is_end(state: State, world: World) -> bool:
    """Tell whether the system may stay in a state for ever.

    All is published and resolved; or a driver has refused to start because the
    databases disagree, and they do.
    """
    if state.halted:
        return disagree(state)
    return is_at_rest(state, world) and state.home.decided == state.home.noted
