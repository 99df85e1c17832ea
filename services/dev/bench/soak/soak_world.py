"""The topic, the load, the rows and the disk space of a soak run.

Not every disk can hold the rows of half an hour. From time to time one transaction
renames the table and creates an empty one in its place (``RowParts``). A batch is
published in one transaction too, so each batch is wholly in one part. Each part is then
compared with the ledger, as ``verify`` would do it: it must hold as many rows as its
batches have committed, and their offsets must add up to the batches' checksums. Then
the part is dropped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from confluent_kafka.cimpl import NewTopic
from psycopg import sql

from tallyweir.services.dev.bench.world.bench_world import (
    DUPLICATES,
    PARTITIONS,
    TOPIC,
    BenchPipeline,
    incomplete_run,
)
from tallyweir.services.dev.bench.world.driver_run import wrong_result
from tallyweir.services.kafka.clients import admin_client
from tallyweir.services.kafka.topics import ANSWER_TIMEOUT_S
from tallyweir.services.process.endpoints import Endpoints, program_environment
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import FatalError

HORIZON_S = 3_600
#: Upper limit of live IDs: those of the horizon and of the bucket that ends with it,
#: with some margin.
LIVE_IDS_MAX = 25_000_000
#: Rows that are counted and dropped at a time if the disk cannot hold all of them.
ROWS_PER_PART = 10_000_000

_RETAINED_BYTES = 512 << 20
_SEGMENT_BYTES = 64 << 20
#: How long a message may outlive its retention: the broker looks every five minutes for
#: what it may delete, and deletes it a minute later.
_RETENTION_S = 360
_MESSAGE_BYTES = 110
_ROW_BYTES = 150
#: A row in the list of repeats, with its two indexes.
_REPEAT_BYTES = 350
#: An ID in Postgres, and in the driver's copy of the catalog during a merge.
_ID_BYTES = 25 + 64
_LOG_BYTES = 4 << 30
_LOAD_END_S = 120.0


def needs_of(events: float, *, rate: float, keeps_rows: bool) -> dict[str, int]:
    """Compute the bytes of disk that a run needs, by purpose.

    Args:
        events: Events of the whole run.
        rate: Events per second.
        keeps_rows: Whether all rows stay until the run ends, or only two parts of them.
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


def create_topic(bootstrap: str) -> None:
    """Create a topic from which the broker deletes old messages.

    If the broker deletes an unread message, the run ends: a driver refuses to skip it.
    """
    topic = NewTopic(
        TOPIC,
        num_partitions=PARTITIONS,
        replication_factor=1,
        config={
            "retention.bytes": str(_RETAINED_BYTES),
            "segment.bytes": str(_SEGMENT_BYTES),
        },
    )
    # Without this reference the client ends before the answer comes.
    admin = admin_client(bootstrap)
    (made,) = admin.create_topics([topic]).values()
    made.result(ANSWER_TIMEOUT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The totals of a load.

    Attributes:
        messages: Messages that the broker has received.
        distinct: Distinct events among them.
        processor_seconds: Processor time of the program that sent them.
    """

    messages: int
    distinct: int
    processor_seconds: float


class RunningLoad:
    """The running load program; see ``tallyweir.services.dev.bench.soak.soak_load``."""

    def __init__(self, program: subprocess.Popen[str], orders: IO[str]) -> None:
        self._program = program
        self._orders = orders

    def allow(self, messages: float) -> None:
        """Let the program send until it has sent ``messages`` since its start.

        Raises:
            FatalError: ``BENCH_INCOMPLETE``: the program has ended.
        """
        try:
            self._orders.write(f"{messages:.0f}\n")
            self._orders.flush()
        except BrokenPipeError as ended:
            raise self._failed() from ended

    def end(self) -> Sent:
        """Let the program send no more, and wait until the broker has everything.

        Raises:
            FatalError: ``BENCH_INCOMPLETE``: some messages were not delivered.
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
            fix="Check the broker's disk space and load.",
        )


@contextmanager
def running_load(endpoints: Endpoints, *, seed: int) -> Iterator[RunningLoad]:
    """Start the load program; it sends nothing until ``allow`` is called."""
    program = subprocess.Popen(
        [sys.executable, "-m", "tallyweir.services.dev.bench.soak.soak_load"],
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


_SQL = load_statements("tallyweir.services.dev.bench.soak", "soak.sql")


class RowParts:
    """The parts of one table.

    Args:
        dsn: DSN of the home.
        pipeline: The pipeline that appends to the table.
        rows_per_part: The least number of rows in a part.
    """

    def __init__(
        self, dsn: str, pipeline: BenchPipeline, *, rows_per_part: int
    ) -> None:
        self.rows = 0
        self._dsn = dsn
        self._pipeline = pipeline
        self._rows_per_part = rows_per_part
        self._through_sequence = 0

    def drop_some(self, committed: int) -> None:
        """Count and drop a part, if there are enough rows.

        Args:
            committed: Events that all batches have committed so far.

        Raises:
            FatalError: ``BENCH_WRONG``: the rows differ from the ledger.
        """
        if committed - self.rows >= self._rows_per_part:
            self.drop_all()

    def drop_all(self) -> None:
        """Count and drop all rows that are there, while the driver may write more.

        Raises:
            FatalError: ``BENCH_WRONG``: the rows differ from the ledger.
        """
        names = {
            "table": sql.Identifier(self._pipeline.table),
            "part": sql.Identifier(f"{self._pipeline.table}_part"),
        }
        values: dict[str, object] = {
            "pipeline": self._pipeline.name,
            "after_sequence": self._through_sequence,
        }
        # Connect as the driver does, so that the new table is where the old one was.
        with connect(self._dsn, application_name="bench") as connection:
            # Wait for the batch that is being published, and make the next one wait.
            connection.execute(_SQL["rename_part"].format(**names))
            connection.execute(_SQL["begin_part"].format(**names))
            ((through,),) = connection.execute(_SQL["last_sequence"], values).fetchall()
            connection.commit()
            values["through_sequence"] = through
            (found,) = connection.execute(_SQL["count_part"].format(**names)).fetchall()
            (claimed,) = connection.execute(_SQL["claimed_part"], values).fetchall()
            if found != claimed:
                raise wrong_result(
                    f"Of the batches {self._through_sequence + 1} to {through} the "
                    f"table holds {found} rows and their offsets' sum instead of "
                    f"{claimed}."
                )
            connection.execute(_SQL["drop_part"].format(**names))
        self.rows += int(found[0])
        self._through_sequence = through
