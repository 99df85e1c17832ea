"""What a template reads in a trial: its made-up events, with repeats and broken ones.

The rows of a stream must not depend on where batches end; otherwise two runs could not
be compared. So no event is behind the watermark, however the topic is read: events are
out of order by less than any template's delay. If a function's rows depend on the order
of a key's events, those are sent in order and to one partition.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tallyweir.schemas.contract import Contract
from tallyweir.services.local.datasets.made_up import DATASETS
from tallyweir.services.produce.emit import plan_faults
from tallyweir.services.produce.faults import FaultRates, Message, default_partition

PARTITIONS = 4

#: 50 events late are 5 s late, and made-up events are 2 s old: sessions wait for 10 s.
_STEP = dt.timedelta(seconds=0.1)
_DUPLICATES = 0.1
_POISON = 0.02
_DISORDER = 0.1
#: Events left out before the end, so that the end is later than any window.
_LEAP_EVENTS = 20_000
#: In a stream sent in order the clock leaps, so that every machine falls silent.
_SILENCE_EVERY = 500
_SILENCE = dt.timedelta(minutes=2)


#: Data sets that are sent in order, and the field whose events share a partition.
#: Machines' state depends on the order of a machine's readings; flights are hours apart
#: at night, which is more than their delay.
_IN_ORDER: Mapping[str, str | None] = {"machine_readings": "machine", "flights": None}


class TemplateStream:
    """The messages of one trial: a body, and an end that closes all of its windows.

    Args:
        contract: The contract of the events.
        event_id: The field with the ID.
        dataset: The data set of the made-up events.
        events: Number of different valid events in the body.
        seed: Decides the events and their faults.
        now: The latest time that an event may have.
    """

    def __init__(  # noqa: PLR0913 (keyword-only)
        self,
        *,
        contract: Contract,
        event_id: str,
        dataset: str,
        events: int,
        seed: int,
        now: dt.datetime,
    ) -> None:
        self._in_order = dataset in _IN_ORDER
        self._key = _IN_ORDER.get(dataset)
        self._contract = contract
        self._event_id = event_id
        self._events = events
        self._seed = seed
        ticks = events + 2 * _LEAP_EVENTS
        silences = ticks // _SILENCE_EVERY * _SILENCE
        clock = _clock(
            now - ticks * _STEP - (silences if self._in_order else dt.timedelta()),
            leaps=self._in_order,
        )
        self._records = DATASETS[dataset].events(seed, clock)

    def body(self) -> Iterator[Message]:
        """Yield the messages, with repeats and broken ones; call it before ``end``."""
        plan = plan_faults(
            contract=self._contract,
            event_id=self._event_id,
            key=self._key,
            partitions=PARTITIONS,
            rates=FaultRates(
                duplicates=_DUPLICATES,
                poison=_POISON,
                disorder=0.0 if self._in_order else _DISORDER,
            ),
            seed=self._seed,
        )
        for message in plan.messages(itertools.islice(self._records, self._events)):
            # In another partition, a repeat could be read before events sent earlier.
            yield message if self._key is None else replace(message, partition=None)

    def end(self) -> Iterator[Message]:
        """Yield good messages of much later events, for every partition."""
        plan = plan_faults(
            contract=self._contract,
            event_id=self._event_id,
            key=self._key,
            partitions=PARTITIONS,
        )
        reached: set[int] = set()
        later = itertools.islice(self._records, _LEAP_EVENTS, None)
        for record in later:
            for message in plan.messages([record]):
                yield message
                reached.add(default_partition(message.key, PARTITIONS))
            if len(reached) == PARTITIONS:
                return


def _clock(start: dt.datetime, *, leaps: bool) -> Callable[[], dt.datetime]:
    """Return a clock that advances by a step at each call."""
    looks = itertools.count()

    def look() -> dt.datetime:
        number = next(looks)
        silences = number // _SILENCE_EVERY if leaps else 0
        return start + number * _STEP + silences * _SILENCE

    return look
