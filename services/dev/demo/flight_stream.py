"""Sends the flights, with faults, in parts that a drill asks for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from tallyweir.schemas.contract import load_contract
from tallyweir.services.dev.demo.expected_results import ExpectedResults
from tallyweir.services.dev.demo.scenario import PARTITIONS, RATES, Scenario
from tallyweir.services.local.datasets.flights import read_airlines, read_flights
from tallyweir.services.produce.emit import plan_faults
from tallyweir.services.produce.faults import Expectation
from tallyweir.services.produce.producer import EventProducer
from tallyweir.services.produce.source_section import read_source_section

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
