"""The load of ``bench soak``: a program that sends as many page views as it may.

The program reads one line of JSON that says where to send them. Each later line holds
the number of messages that the program may have sent in all by then. The program sends
up to that number and waits for the next line. At the end of its input it prints as JSON
what it has sent.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import KafkaError, Message, Producer

from tallyweir.services.dev.bench.soak.view_blocks import ViewBlocks
from tallyweir.services.dev.bench.world.bench_world import DUPLICATES
from tallyweir.services.kafka.topics import SILENT_LOG
from tallyweir.sinks.kafka_settings import client_config

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
                **client_config(bootstrap),
                "acks": "all",
                "enable.idempotence": True,
                "delivery.report.only.error": True,
                "queue.buffering.max.messages": 2 * _QUEUE_MAX,
                "linger.ms": 20,
                "batch.size": 262_144,
                "compression.type": "lz4",
                "partitioner": "consistent_random",
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
