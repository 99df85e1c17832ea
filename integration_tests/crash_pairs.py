"""``python -m integration_tests.crash_pairs``: two faults in a row, in all pairs.

The long run of the crash matrix. The first fault hits one driver, the second its
successor, which finds what the first has left; then a third finishes. Over three
databases there are 72 faults and so 5,184 pairs, which take hours; ``--sample`` takes
some of them at random, by a seed that is printed.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from pathlib import Path

from integration_tests.harness.crash_world import (
    BRANCH_POINTS,
    Fault,
    all_faults,
    crash_world,
)
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres

KINDS = ("kill", "hang", "reset", "error")

#: Pairs that one pipeline goes through before it makes room for a fresh one.
_PAIRS_PER_WORLD = 40


def choose_pairs(
    *, databases: int, sample: int | None, seed: int
) -> list[tuple[Fault, Fault]]:
    """List the pairs to run, in the order of the seed if only some are wanted."""
    faults = [
        fault
        for kind in KINDS
        for fault in all_faults(kind)
        if databases > 1 or fault.point not in BRANCH_POINTS
    ]
    pairs = list(itertools.product(faults, faults))
    if sample is None:
        return pairs
    return random.Random(seed).sample(pairs, sample)


def main() -> int:
    """Run the pairs; the first one that breaks something ends it with exit code 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--databases", type=int, default=3)
    parser.add_argument("--sample", type=int, help="how many pairs; else all")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    pairs = choose_pairs(
        databases=options.databases, sample=options.sample, seed=options.seed
    )
    names = [f"p{number}" for number in range(1, options.databases)]
    print(f"seed={options.seed} pairs={len(pairs)}", flush=True)  # noqa: T201
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tallyweir-pairs-") as directory:
        server = EmbeddedPostgres(Path(directory) / "postgres")
        server.start()
        try:
            done = 0
            for first in range(0, len(pairs), _PAIRS_PER_WORLD):
                with crash_world(server.dsn, names) as world:
                    for pair in pairs[first : first + _PAIRS_PER_WORLD]:
                        for fault in pair:
                            world.suffer(fault)
                        world.recover()
                        done += 1
                        print(  # noqa: T201
                            f"{done}/{len(pairs)} {' then '.join(map(str, pair))}",
                            flush=True,
                        )
        finally:
            server.stop()
    seconds = time.monotonic() - began
    print(f"ok: {done} pairs, {2 * done} faults in {seconds:.0f} s")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
