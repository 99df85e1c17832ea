"""The load of ``bench soak``: a program that sends as many page views as it may.

The program reads one line of JSON that says where to send them. Each later line holds
the number of messages that the program may have sent in all by then. The program sends
up to that number and waits for the next line. At the end of its input it prints as JSON
what it has sent.

A load generator that shares the machine with the system under load must be cheap.
Encoding a page view takes longer than the pipeline takes to process it. Views are
therefore encoded once, and each block of messages copies them with other IDs and later
times.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, Message, Producer

from tallyweir.services.dev.bench.world.bench_world import DUPLICATES
from tallyweir.services.kafka.clients import SILENT_LOG, producer_settings
from tallyweir.services.local.datasets.page_views import (
    EVENTS_PER_SECOND,
    FIRST_VIEW_MICROS,
    read_page_views,
)

_Bytes = npt.NDArray[np.uint8]

#: New views in a block.
BLOCK = 4_000
STEP_MICROS = 1_000_000 // EVENTS_PER_SECOND
_ID_BYTES = 16
#: Length of a UUID as text, and the places of its digits between the dashes.
_ID_LENGTH = 36
_DIGITS = np.array([at for at in range(_ID_LENGTH) if at not in {8, 13, 18, 23}])
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
#: Avro encodes every instant from 1979 to 3111, in microseconds, as a long of 8 bytes.
_TIME_BYTES = 8
_SEVEN_BITS = 7 * np.arange(_TIME_BYTES, dtype=np.int64)
_GOES_ON = np.array([0x80] * (_TIME_BYTES - 1) + [0], dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class ViewBlock:
    """A block of messages.

    Attributes:
        keys: The event ID of each message.
        payloads: The framed payload of each message.
        distinct: How many of the messages were not sent before.
    """

    keys: list[bytes]
    payloads: list[bytes]
    distinct: int


class ViewBlocks:
    """An endless stream of page views, some of them repeats.

    Event time rises as in ``read_page_views``. A repeat copies a view of the previous
    block byte for byte.

    Args:
        duplicates: The share of messages that repeat an earlier one.
        seed: Another seed gives other views.
    """

    def __init__(self, *, duplicates: float, seed: int) -> None:
        self._source = np.random.default_rng(seed)
        views = list(read_page_views(2 * BLOCK, seed=seed))
        lengths = Counter(len(payload) for _, payload in views)
        ((self._length, _),) = lengths.most_common(1)
        chosen = [
            (number, *view)
            for number, view in enumerate(views)
            if len(view[1]) == self._length
        ]
        # Fewer than BLOCK views may have this length; then some are taken twice.
        chosen = [chosen[number % len(chosen)] for number in range(BLOCK)]
        self._id_at = _the_one({payload.index(key) for _, key, payload in chosen})
        self._time_at = _the_one(
            {
                payload.index(avro_instants(np.array([number]))[0].tobytes())
                for number, _, payload in chosen
            }
        )
        payloads = b"".join(payload for *_, payload in chosen)
        self._views = np.frombuffer(payloads, dtype=np.uint8).reshape(BLOCK, -1)
        self._repeats = round(BLOCK * duplicates / (1 - duplicates))
        self._before: tuple[_Bytes, _Bytes] | None = None
        self._made = 0

    def next_block(self) -> ViewBlock:
        """Make the next block; the first one contains no repeats."""
        ids = self._make_ids()
        views = self._views.copy()
        views[:, self._id_at : self._id_at + _ID_LENGTH] = ids
        numbers = np.arange(self._made, self._made + BLOCK)
        views[:, self._time_at : self._time_at + _TIME_BYTES] = avro_instants(numbers)
        self._made += BLOCK
        before, self._before = self._before, (ids, views)
        if before is not None:
            again = self._source.choice(BLOCK, size=self._repeats, replace=False)
            ids = np.concatenate([ids, before[0][again]])
            views = np.concatenate([views, before[1][again]])
        return ViewBlock(_as_rows(ids), _as_rows(views), BLOCK)

    def _make_ids(self) -> _Bytes:
        """Draw IDs in the form of UUIDs; they collide as rarely as UUIDs do."""
        drawn = np.frombuffer(self._source.bytes(_ID_BYTES * BLOCK), dtype=np.uint8)
        halves = np.stack([drawn >> 4, drawn & 0x0F], axis=1)
        ids = np.full((BLOCK, _ID_LENGTH), ord("-"), dtype=np.uint8)
        ids[:, _DIGITS] = _HEX[halves].reshape(BLOCK, -1)
        return ids


def avro_instants(numbers: npt.NDArray[np.int64]) -> _Bytes:
    """Encode the times of views as Avro does: seven bits per byte, lowest first."""
    micros = FIRST_VIEW_MICROS + STEP_MICROS * numbers
    # Avro doubles a long that is not negative.
    shifted = (2 * micros)[:, np.newaxis] >> _SEVEN_BITS
    found: _Bytes = (shifted & 0x7F).astype(np.uint8) | _GOES_ON
    return found


def _the_one(places: set[int]) -> int:
    assert len(places) == 1, "views of one length have their fields at the same places"
    return places.pop()


def _as_rows(matrix: _Bytes) -> list[bytes]:
    rows: list[bytes] = (
        np.ascontiguousarray(matrix).view(f"V{matrix.shape[1]}")[:, 0].tolist()
    )
    return rows


_QUEUE_MAX = 400_000
_POLL_S = 0.05


class Load:
    """Sends blocks of page views, and counts them.

    Args:
        bootstrap: Address of the broker.
        topic: An existing topic.
        seed: Another seed gives other views.
    """

    def __init__(self, bootstrap: str, topic: str, *, seed: int) -> None:
        self.sent = 0
        self.distinct = 0
        self.failed = 0
        self._topic = topic
        self._blocks = ViewBlocks(duplicates=DUPLICATES, seed=seed)
        self._next = self._blocks.next_block()
        # The settings of Tallyweir's producers, except that it asks for reports of
        # failures only: a report for each message would cost more than sending it.
        self._producer = Producer(
            {
                **producer_settings(bootstrap, linger_ms=20),
                "delivery.report.only.error": True,
                "queue.buffering.max.messages": 2 * _QUEUE_MAX,
                "on_delivery": self._note_failure,
            },
            logger=SILENT_LOG,
        )

    def send_until(self, allowed: int) -> None:
        """Send whole blocks while the total stays within ``allowed``."""
        while self.sent + len(self._next.keys) <= allowed:
            while len(self._producer) > _QUEUE_MAX:
                self._producer.poll(_POLL_S)
            block = self._next
            self._producer.produce_batch(
                self._topic,
                [
                    {"key": key, "value": payload}
                    for key, payload in zip(block.keys, block.payloads, strict=True)
                ],
            )
            self.sent += len(block.keys)
            self.distinct += block.distinct
            self._next = self._blocks.next_block()
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until the broker has everything."""
        while len(self._producer):
            self._producer.flush(_POLL_S)

    def _note_failure(self, _error: KafkaError | None, _message: Message) -> None:
        self.failed += 1


def main() -> None:
    """Send what the input allows until the input ends, then print the figures."""
    task = json.loads(sys.stdin.readline())
    load = Load(task["bootstrap"], task["topic"], seed=task["seed"])
    busy = time.process_time()
    for line in sys.stdin:
        load.send_until(int(line))
    load.flush()
    figures = {
        "sent": load.sent,
        "distinct": load.distinct,
        "failed": load.failed,
        "processor_seconds": time.process_time() - busy,
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
