"""What goes wrong in a demo, and when: a pure function of events and seed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from tallyweir.services.produce.faults import FaultRates

PARTITIONS = 4
RATES = FaultRates(duplicates=0.2, poison=0.01, invalid=("distance_miles", -1))

#: The shares of the messages that the two killed drivers get. The third driver gets the
#: rest, so each of the three finds new events to read.
_SHARES = (0.45, 0.3)
_BATCHES = 14
_BATCH_OFFSETS_MIN = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One SIGKILL of a driver in mid-batch.

    Attributes:
        batches_before: Number of batches that the driver publishes first, at least.
        moment: When within the batch, as a share of an earlier batch's duration.
        loses_checkpoint: Whether the checkpoint directory is deleted afterwards.
    """

    batches_before: int
    moment: float
    loses_checkpoint: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What happens in one demo.

    Attributes:
        events: Number of flights to send.
        seed: The seed, which also decides the faults of the messages.
        messages: Rough number of messages that the flights and their faults make.
        parts: Number of messages to send for each of the drivers that are killed; the
            last driver gets the rest.
        batch_offsets_max: Most offsets that a batch may read.
        kills: The kills, in order.
    """

    events: int
    seed: int
    messages: int
    parts: tuple[int, ...]
    batch_offsets_max: int
    kills: tuple[Kill, ...]


def write_scenario(events: int, seed: int) -> Scenario:
    """Decide what goes wrong.

    Args:
        events: Number of flights to send, at least one.
        seed: The same seed and events give the same scenario.
    """
    source = random.Random(seed)  # noqa: S311 (repeatable is the point)
    messages = math.ceil(events * (1 + RATES.duplicates + RATES.poison))
    parts = tuple(max(1, int(messages * share)) for share in _SHARES)
    batch_offsets_max = max(_BATCH_OFFSETS_MIN, math.ceil(messages / _BATCHES))
    unlucky = source.randrange(len(parts))
    kills = tuple(
        Kill(
            # The part must hold the batch to die in, and one more for another try.
            batches_before=max(
                0, min(source.randint(1, 3), part // batch_offsets_max - 2)
            ),
            moment=source.uniform(0.1, 0.8),
            loses_checkpoint=number == unlucky,
        )
        for number, part in enumerate(parts)
    )
    return Scenario(
        events=events,
        seed=seed,
        messages=messages,
        parts=parts,
        batch_offsets_max=batch_offsets_max,
        kills=kills,
    )
