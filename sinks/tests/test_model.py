"""No reachable state of the protocol breaks a rule; every mistake in it is found.

The model runs production's ``Publisher``, ``Coordinator``, ``resolve`` and decisions
one port call at a time, in every order that two drivers, the resolver, the servers and
the faults of a budget allow. ``python -m tallyweir.sinks.tests.model`` explores other
budgets.
"""

from __future__ import annotations

import pytest

from tallyweir.sinks.tests.model.exploration import explore
from tallyweir.sinks.tests.model.mutants import MUTANTS, Mutant
from tallyweir.sinks.tests.model.states import World
from tallyweir.sinks.tests.model.worlds import LARGE, SMALL

#: Mutants that break a rule after some 20,000 states only, which takes seconds.
_FOUND_LATE = (
    "only a participant behind is seen",
    "histories are not compared at the start",
)

#: The world with the most states. Other worlds have each of its faults by itself.
_LONGEST = ("home restored under two drivers",)


@pytest.mark.parametrize("world", SMALL, ids=lambda world: world.name)
def test_no_state_of_a_small_world_breaks_a_rule(world: World) -> None:
    """Every state is visited, and from each of them the system finds its end."""
    found = explore(world)

    print(found)  # noqa: T201 - the counts are the proof, a trace the explanation
    assert found.rule == "", str(found)
    assert found.ends > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "world",
    [
        pytest.param(world, marks=pytest.mark.long, id=world.name)
        if world.name in _LONGEST
        else pytest.param(world, id=world.name)
        for world in LARGE
    ],
)
def test_no_state_of_a_large_world_breaks_a_rule(world: World) -> None:
    """The same, where faults of several kinds meet."""
    found = explore(world)

    print(found)  # noqa: T201 - as above
    assert found.rule == "", str(found)
    assert found.ends > 0


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, marks=pytest.mark.slow)
        if mutant.name in _FOUND_LATE
        else mutant
        for mutant in MUTANTS
    ],
    ids=[mutant.name for mutant in MUTANTS],
)
def test_every_mistake_is_found(mutant: Mutant) -> None:
    """A protocol with one mistake breaks a rule in a world that has none otherwise."""
    found = explore(mutant.world, mutant.rules)

    print(f"{mutant.name}: {found.rule}, {len(found.trace)} steps")  # noqa: T201
    assert found.rule != "", f"{mutant.name} survived: {found}"


@pytest.mark.slow
@pytest.mark.parametrize("world", {mutant.world: None for mutant in MUTANTS}, ids=str)
def test_what_kills_a_mutant_is_the_mistake(world: World) -> None:
    """The worlds of the mutants break no rule as long as nothing is mistaken."""
    assert explore(world).rule == ""


def test_there_are_enough_mutants() -> None:
    """Each of them is another mistake."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30
