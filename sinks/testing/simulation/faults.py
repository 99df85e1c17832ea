"""What may go wrong in a history, and how often: each history draws its own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from tallyweir.sinks.faultpoints import FaultPoint, Side
from tallyweir.sinks.testing.memory_server import LostAnswer

#: Where a fault that hits no fault point happens: before a call to a database.
BETWEEN_CALLS = "between calls"


class FaultKind(Enum):
    """What the schedule may do at a fault point or between two calls."""

    KILL = "process killed"
    OTHER_DRIVER = "other driver works"
    RESOLVER = "resolver works"
    CRASH_HOME = "home crashes"
    CRASH_OTHER = "participant crashes"
    RESTORE_HOME = "home goes back"
    RESTORE_OTHER = "participant goes back"
    RESTORE_ALL = "all go back to one moment"
    LOSE_COMMIT = "an answer to COMMIT is to be lost"
    LOSE_PREPARE = "an answer to PREPARE is to be lost"
    LOSE_FINISH = "an answer to COMMIT or ROLLBACK PREPARED is to be lost"
    ACT_LATE = "late statements arrive"
    UNREACHABLE = "server is to be unreachable"
    ZOMBIE_TASK = "zombie task stages"


#: Faults that take effect later or never; they are counted when they take effect.
ARMED = (
    FaultKind.LOSE_COMMIT,
    FaultKind.LOSE_PREPARE,
    FaultKind.LOSE_FINISH,
    FaultKind.UNREACHABLE,
)

#: Every fault that many histories must have often; otherwise they prove little.
FAULTS = (
    *(kind.value for kind in FaultKind if kind not in ARMED),
    *(
        f"{statement}: answer lost, {lost.value}"
        for statement in ("COMMIT", "PREPARE", "COMMIT PREPARED", "ROLLBACK PREPARED")
        for lost in LostAnswer
    ),
    "server unreachable",
    "lock holder ended",
    "offset without a record",
    "tick",
    "batch staged again without refused rows",
    "batch published beside other work",
)

#: How actors must end now and then because of these faults.
ENDINGS = (
    "detected: PARTICIPANT_AHEAD",
    "detected: PARTICIPANT_BEHIND",
    "detected: BRANCH_LOST",
    "stopped: CLAIM_LOST",
    "stopped: OFFSETS_DISAGREE",
    "stopped: SEQUENCE_DISAGREES",
    "stopped: FENCED",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """The kinds of faults that one history knows, and the shape of its work."""

    kinds: Sequence[FaultKind]
    weights: Sequence[int]
    #: Probability of a fault at a side of a fault point, and before a call.
    rate_at_points: float
    rate_between_calls: float
    steps: int
    batch_length: int
    #: Probability that the driver that worked last works next.
    stickiness: float

    @classmethod
    def draw(cls, chance: random.Random) -> Swarm:
        """Draw the options of one history."""
        kinds = [kind for kind in FaultKind if chance.random() < chance.choice(_SHARES)]
        kinds = kinds or [chance.choice(list(FaultKind))]
        return cls(
            kinds=kinds,
            weights=[
                chance.choice((1, 1, 2, 4)) * _OFTEN.get(kind, 1) for kind in kinds
            ],
            rate_at_points=chance.choice((0.05, 0.12, 0.25)),
            rate_between_calls=chance.choice((0.0, 0.02, 0.08)),
            steps=chance.randrange(6, 13),
            batch_length=chance.choice((4, 8, 12)),
            stickiness=chance.choice((0.5, 0.8, 0.95)),
        )

    def pick(self, chance: random.Random, place: str) -> FaultKind | None:
        """Choose the fault at a place; mostly None."""
        is_call = place == BETWEEN_CALLS
        rate = self.rate_between_calls if is_call else self.rate_at_points
        if chance.random() >= rate:
            return None
        return chance.choices(self.kinds, self.weights)[0]


_SHARES = (0.3, 0.6, 0.9)

#: Branches are finished, and above all rolled back, less often than other events occur.
_OFTEN = {FaultKind.LOSE_FINISH: 3}


@dataclass(slots=True, kw_only=True)
class Coverage:
    """What went wrong, counted over one history or many."""

    happened: Counter[str] = field(default_factory=Counter)
    #: Faults by the place where they were injected.
    places: Counter[str] = field(default_factory=Counter)
    #: How often each place was reached, with a fault or without.
    reached: Counter[str] = field(default_factory=Counter)

    def add(self, other: Coverage) -> None:
        """Add the counts of another history."""
        self.happened.update(other.happened)
        self.places.update(other.places)
        self.reached.update(other.reached)

    def rarest_fault(self) -> tuple[int, str]:
        """Return the rarest fault or place of faults, and how often it came."""
        return min(
            *((self.happened[name], name) for name in FAULTS),
            *((self.places[name], name) for name in PLACES),
        )

    def rarest_ending(self) -> tuple[int, str]:
        """Return the rarest ending, and how often it came."""
        return min((self.happened[name], name) for name in ENDINGS)

    def table(self) -> str:
        """Write the counts for people."""
        lines = [f"{'fault':<52}{'times':>10}"]
        lines += [f"{name:<52}{self.happened[name]:>10}" for name in FAULTS]
        lines += ["", f"{'ending':<52}{'times':>10}"]
        lines += [f"{name:<52}{self.happened[name]:>10}" for name in ENDINGS]
        lines += ["", f"{'place':<32}{'reached':>10}{'faults':>10}"]
        lines += [
            f"{name:<32}{self.reached[name]:>10}{self.places[name]:>10}"
            for name in PLACES
        ]
        return "\n".join(lines)


def place_of(point: FaultPoint, side: Side) -> str:
    """Name one side of a fault point."""
    return f"{side.value} {point.value}"


#: Every place at which faults are injected.
PLACES = (
    *(place_of(point, side) for point in FaultPoint for side in Side),
    BETWEEN_CALLS,
)
