"""What a demo sends and what goes wrong in it: decided by events and seed alone."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tallyweir.schemas.contract import load_contract
from tallyweir.services.dev.demo.expected_results import ExpectedResults
from tallyweir.services.local.datasets.flights import read_airlines, read_flights
from tallyweir.services.produce.emit import plan_faults
from tallyweir.services.produce.faults import Expectation, FaultRates
from tallyweir.services.produce.producer import EventProducer
from tallyweir.services.produce.source_section import read_source_section

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


_TELL_EVERY_MESSAGES = 2_000


class FlightStream:
    """All messages of a demo, in an order that only the scenario decides.

    The messages do not depend on where one part ends and the next begins. So a repeat
    that is due a thousand events later can go to another driver than the event that it
    repeats.

    Args:
        bootstrap: ``host:port`` of the broker.
        pipeline_file: The file that names topic, contract and event ID.
        scenario: Gives the number of flights, and the seed.
    """

    def __init__(
        self,
        bootstrap: str,
        pipeline_file: Path,
        scenario: Scenario,
    ) -> None:
        section = read_source_section(pipeline_file)
        self.expected = ExpectedResults(dict(read_airlines()))
        (self._topic,) = section.topics
        self._producer = EventProducer(bootstrap)
        self._plan = plan_faults(
            contract=load_contract(section.choose_schema(None), pipeline_file),
            event_id=section.event_id,
            partitions=PARTITIONS,
            rates=RATES,
            seed=scenario.seed,
        )
        self._messages = self._plan.messages(
            self.expected.count(read_flights(scenario.events))
        )

    @property
    def expectation(self) -> Expectation:
        """What an exactly-once pipeline must make of the messages sent so far."""
        return self._plan.expectation

    def send(self, count: int | None, on_sent: Callable[[int], None]) -> int:
        """Send the next messages; return their number, once the broker has them.

        Args:
            count: Most messages to send; None for all that are left.
            on_sent: Called now and then with the number of messages sent in all.

        Raises:
            RetryableError: The broker did not get all messages.
        """
        before = self._producer.sent
        for message in itertools.islice(self._messages, count):
            self._producer.send(
                self._topic,
                key=message.key,
                payload=message.payload,
                partition=message.partition,
            )
            if self._producer.sent % _TELL_EVERY_MESSAGES == 0:
                on_sent(self._producer.sent)
        delivered = self._producer.flush()
        on_sent(delivered)
        return delivered - before
