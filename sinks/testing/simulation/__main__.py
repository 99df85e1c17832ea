"""Runs one history with its trace, or many with their coverage."""

from __future__ import annotations

import argparse
import random
import sys

from tallyweir.sinks.testing.simulation.history import run_histories, run_history


def main() -> int:
    """Return 0 if every history kept every promise."""
    parser = argparse.ArgumentParser(
        prog="python -m tallyweir.sinks.testing.simulation"
    )
    parser.add_argument("seed", nargs="?", type=int, help="of the one, or the first")
    parser.add_argument("--histories", type=int, help="run so many, from that seed on")
    chosen = parser.parse_args()
    seed = chosen.seed
    if seed is None:
        seed = random.SystemRandom().randrange(2**32)
    if chosen.histories is None:
        history = run_history(seed)
        sys.stdout.write("\n".join([*history.trace, f"seed {seed}: ok", ""]))
    else:
        coverage = run_histories(seed, chosen.histories)
        last = seed + chosen.histories - 1
        sys.stdout.write(f"{coverage.table()}\nseeds {seed} to {last}: ok\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
