"""Explores one world with a budget of one's own.

    python -m tallyweir.sinks.tests.model batches=3 crashes=3 late=2

Every field of ``Budget`` may be given, how many batches there are, and ``ticks=1``.
States are kept in memory, about 3 kB each. Ends with 1 if a rule is broken, after the
shortest trace.
"""

from __future__ import annotations

import sys

from tallyweir.sinks.tests.model.exploration import explore
from tallyweir.sinks.tests.model.states import Budget, World


def main(arguments: list[str]) -> int:
    """Explore, and tell what was found."""
    given = {name: int(n) for name, _, n in (a.partition("=") for a in arguments)}
    batches = given.pop("batches", 2)
    ticks = bool(given.pop("ticks", 0))
    world = World(
        name="asked for", budget=Budget(**given), batches=batches, ticks=ticks
    )
    found = explore(world, states_max=50_000_000)
    sys.stdout.write(f"{found}\n")
    return 1 if found.rule else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
