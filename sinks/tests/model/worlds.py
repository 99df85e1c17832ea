"""The worlds that are explored: small ones always, large ones in the full suite.

One exploration with every fault at once would not end, so each world has the faults
that may meet, and the others are away.
"""

from __future__ import annotations

from tallyweir.sinks.tests.model.states import Budget, World

SMALL = (
    World(name="undisturbed", budget=Budget(), batches=3),
    World(name="crashes", budget=Budget(crashes=2), batches=2),
    World(name="crash and late PREPARE", budget=Budget(crashes=1, late=1)),
    World(name="lost answers", budget=Budget(losses=2)),
    World(
        name="lost answer, wide replay", budget=Budget(losses=1, crashes=1), wide=True
    ),
    World(name="takeover", budget=Budget(takeovers=1), batches=1),
    World(
        name="resolver beside a crash", budget=Budget(crashes=1, resolver=1), batches=1
    ),
    World(name="zombies", budget=Budget(zombies=1, crashes=1), batches=1),
    World(name="votes", budget=Budget(votes=1)),
    World(name="participant restored", budget=Budget(restores=1)),
    World(
        name="refused row, late PREPARE of the same claim",
        budget=Budget(late=1),
        everywhere=True,
        refused=frozenset({(0, 0), (1, 0)}),
    ),
    World(name="servers crash", budget=Budget(outages=2), batches=1),
    World(name="another pipeline", budget=Budget(crashes=1), batches=1, foreign=True),
    World(name="staged ahead", budget=Budget(), batches=3, ahead=True),
    World(name="staged ahead, crash", budget=Budget(crashes=1), ahead=True),
    World(name="staged ahead, lost answer", budget=Budget(losses=1), ahead=True),
    World(
        name="staged ahead, refused row",
        budget=Budget(),
        batches=3,
        everywhere=True,
        refused=frozenset({(0, 0), (2, 1)}),
        ahead=True,
    ),
    World(name="ticks, undisturbed", budget=Budget(), batches=2, ticks=True),
    World(name="ticks, crash", budget=Budget(crashes=1), batches=1, ticks=True),
    World(name="ticks, lost answer", budget=Budget(losses=1), batches=2, ticks=True),
    World(name="ticks, votes", budget=Budget(votes=1), batches=1, ticks=True),
)

LARGE = (
    World(
        name="staged ahead, crashes, late PREPARE",
        budget=Budget(crashes=2, late=1),
        ahead=True,
    ),
    World(name="staged ahead, takeover", budget=Budget(takeovers=1), ahead=True),
    World(name="staged ahead, zombies", budget=Budget(zombies=1), ahead=True),
    World(name="staged ahead, servers crash", budget=Budget(outages=1), ahead=True),
    World(
        name="staged ahead, home restored",
        budget=Budget(home_restores=1),
        ahead=True,
    ),
    World(
        name="staged ahead, participant restored",
        budget=Budget(restores=1),
        ahead=True,
    ),
    World(name="ticks, takeover", budget=Budget(takeovers=1), batches=1, ticks=True),
    World(
        name="ticks, zombie", budget=Budget(zombies=1, crashes=1), batches=1, ticks=True
    ),
    World(name="ticks, servers crash", budget=Budget(outages=2), batches=1, ticks=True),
    World(
        name="ticks, home restored",
        budget=Budget(home_restores=1),
        batches=1,
        ticks=True,
    ),
    World(name="home restored", budget=Budget(home_restores=1)),
    World(name="three batches, crashes", budget=Budget(crashes=2, late=1), batches=3),
    World(name="a driver is paused", budget=Budget(takeovers=1, endings=1), batches=2),
    World(
        name="a driver is paused, late PREPARE",
        budget=Budget(takeovers=1, endings=1, late=1),
        batches=1,
    ),
    World(
        name="two drivers beside the resolver",
        budget=Budget(takeovers=1, resolver=1),
        batches=1,
    ),
    World(
        name="a driver is paused and dies beside the resolver",
        budget=Budget(crashes=1, endings=1, resolver=1),
        batches=1,
    ),
    World(
        name="one of two drivers dies",
        budget=Budget(takeovers=1, crashes=1),
        batches=1,
    ),
    World(
        name="home restored under two drivers",
        budget=Budget(takeovers=1, home_restores=1),
        batches=1,
    ),
)
