"""What a soak reads, writes and needs: its topic, its load, and room on the disk."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from services.dev.bench.bench_world import DUPLICATES, PARTITIONS, TOPIC, incomplete_run
from services.kafka.topics import ANSWER_TIMEOUT_S, SILENT_LOG
from services.process.endpoints import Endpoints, program_environment
from sinks.kafka_settings import client_config
from sinks.protocol.errors import FatalError

HORIZON_S = 3_600
#: IDs of the horizon and of the bucket that ends with it, a little apart.
LIVE_IDS_MAX = 25_000_000
#: Rows that are counted and dropped at a time, where all of them have no room.
ROWS_PER_PART = 10_000_000

_RETAINED_BYTES = 512 << 20
_SEGMENT_BYTES = 64 << 20
#: Every so many seconds the broker looks for what it may delete, and a minute later
#: it has.
_RETENTION_S = 360
_MESSAGE_BYTES = 110
_ROW_BYTES = 150
#: A repeat is listed, with two indexes.
_REPEAT_BYTES = 350
#: In Postgres, and in the driver's copy of the catalog while it is merged.
_ID_BYTES = 25 + 64
_LOG_BYTES = 4 << 30
_LOAD_END_S = 120.0


def needs_of(events: float, *, rate: float, keeps_rows: bool) -> dict[str, int]:
    """Compute the bytes of disk that a run needs, by what they are for.

    Args:
        events: Of the whole run.
        rate: Of them in a second.
        keeps_rows: Whether all rows stay until its end, or two parts of them.
    """
    rows = events if keeps_rows else min(events, 2.0 * ROWS_PER_PART)
    retained = PARTITIONS * (_RETAINED_BYTES + _SEGMENT_BYTES)
    return {
        "rows": round(rows * _ROW_BYTES),
        "repeats": round(events * DUPLICATES * _REPEAT_BYTES),
        "IDs": round(min(events, LIVE_IDS_MAX) * _ID_BYTES),
        "the topic": round(
            min(
                events * _MESSAGE_BYTES, retained + rate * _RETENTION_S * _MESSAGE_BYTES
            )
        ),
        "Postgres' log": _LOG_BYTES,
    }


class SoakTopic:
    """A topic of which the broker deletes what is old.

    What is deleted unread ends the run: a driver refuses to skip it.
    """

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({**client_config(bootstrap)}, logger=SILENT_LOG)

    def create(self) -> None:
        """Make it."""
        topic = NewTopic(
            TOPIC,
            num_partitions=PARTITIONS,
            replication_factor=1,
            config={
                "retention.bytes": str(_RETAINED_BYTES),
                "segment.bytes": str(_SEGMENT_BYTES),
            },
        )
        (made,) = self._admin.create_topics([topic]).values()
        made.result(ANSWER_TIMEOUT_S)

    def count_sent(self) -> int:
        """Count the messages that the broker has ever had."""
        ends = self._admin.list_offsets(
            {
                TopicPartition(TOPIC, number): OffsetSpec.latest()
                for number in range(PARTITIONS)
            }
        )
        return sum(end.result(ANSWER_TIMEOUT_S).offset for end in ends.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a load has sent in all.

    Attributes:
        messages: Those that the broker has.
        distinct: Events among them.
        processor_seconds: Of the program that sent them.
    """

    messages: int
    distinct: int
    processor_seconds: float


class RunningLoad:
    """The program that sends; see ``services.dev.bench.soak_load``."""

    def __init__(self, program: subprocess.Popen[str], orders: IO[str]) -> None:
        self._program = program
        self._orders = orders

    def allow(self, messages: float) -> None:
        """Let it have sent so many messages, since its start.

        Raises:
            FatalError: ``BENCH_INCOMPLETE``: it has ended.
        """
        try:
            self._orders.write(f"{messages:.0f}\n")
            self._orders.flush()
        except BrokenPipeError as ended:
            raise self._failed() from ended

    def end(self) -> Sent:
        """Let it send no more, and wait until the broker has everything.

        Raises:
            FatalError: ``BENCH_INCOMPLETE``: not all was delivered.
        """
        try:
            told, _ = self._program.communicate(timeout=_LOAD_END_S)
        except subprocess.TimeoutExpired as late:
            raise self._failed() from late
        if self._program.returncode:
            raise self._failed()
        figures = json.loads(told)
        if figures["failed"]:
            raise self._failed()
        return Sent(
            messages=figures["sent"],
            distinct=figures["distinct"],
            processor_seconds=figures["processor_seconds"],
        )

    def _failed(self) -> FatalError:
        return incomplete_run(
            "The program that sends page views has failed, or did not end in time.",
            fix="See whether the broker had room and time.",
        )


@contextmanager
def running_load(endpoints: Endpoints, *, seed: int) -> Iterator[RunningLoad]:
    """Start the program that sends; it sends nothing until it may."""
    program = subprocess.Popen(
        [sys.executable, "-m", "services.dev.bench.soak_load"],
        env=program_environment(endpoints),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    try:
        task = {"bootstrap": endpoints.kafka_bootstrap, "topic": TOPIC, "seed": seed}
        program.stdin.write(json.dumps(task) + "\n")
        yield RunningLoad(program, program.stdin)
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()
