"""The peer of the throughput benchmark that runs on Quix Streams' PostgreSQL sink.

``tallyweir.services.dev.bench.peers.peer_runs`` starts this program in an environment
of its own. The program runs a process for each core, all in one consumer group. Each
process is set up as the documentation of Quix Streams says: at least once, no metadata
columns, and a checkpoint every ``_EVENTS_PER_CHECKPOINT`` events, or soon after the
last of them. A checkpoint commits the rows of each partition in a transaction of
Postgres, and then the offsets in Kafka. After a crash between the two the rows are
written again. Nothing is deduplicated.

The program prints a line of JSON for each of these transactions after its commit.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

from quixstreams import Application
from quixstreams.models.serializers.avro import AvroDeserializer
from quixstreams.sinks.community.postgresql import PostgreSQLSink

_FRAME_BYTES = 5
_EVENTS_PER_CHECKPOINT = 10_000
#: Longer than a checkpoint's events take, but short, since the last events wait for it.
_CHECKPOINT_INTERVAL_S = 0.5
_TICK_S = 1.0
_END_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What each process reads and where it writes; the login is in the environment."""

    bootstrap: str
    topic: str
    contract: str
    host: str
    port: int
    database: str
    table: str
    state_directory: str


class _FramedAvro(AvroDeserializer):  # type: ignore[misc] # it publishes no types here
    """Decodes Avro behind a frame of five bytes; reports when the first event comes."""

    def __init__(self, contract: str, reads: Queue[int]) -> None:
        super().__init__(json.loads(contract))
        self._reads: Queue[int] | None = reads

    def __call__(self, value: bytes, ctx: Any) -> Any:  # noqa: ANN401 - Quix's own
        if self._reads is not None:
            self._reads.put(0)
            self._reads = None
        return super().__call__(value[_FRAME_BYTES:], ctx)


class _ReportingSink(PostgreSQLSink):  # type: ignore[misc] # as above
    """Reports the number of rows after each commit."""

    def __init__(self, task: _Task, reads: Queue[int]) -> None:
        super().__init__(
            host=task.host,
            port=task.port,
            dbname=task.database,
            user=os.environ["PGUSER"],
            password=os.environ["PGPASSWORD"],
            table_name=task.table,
            schema_auto_update=False,
            include_metadata=False,
        )
        self._reads = reads

    def write(self, batch: Any) -> None:  # noqa: ANN401 - Quix's own
        super().write(batch)
        self._reads.put(batch.size)


def main() -> None:
    """Read a topic with a known number of events into a table, and stop."""
    bootstrap, topic, contract, host, port, database, table, directory = sys.argv[1:9]
    task = _Task(
        bootstrap=bootstrap,
        topic=topic,
        contract=Path(contract).read_text("utf-8"),
        host=host,
        port=int(port),
        database=database,
        table=table,
        state_directory=directory,
    )
    events, processes = int(sys.argv[9]), int(sys.argv[10])
    spawning = multiprocessing.get_context("spawn")
    reads: Queue[int] = spawning.Queue()
    members = [
        spawning.Process(target=_run_member, args=(task, number, reads), daemon=True)
        for number in range(processes)
    ]
    for member in members:
        member.start()
    _print_reads(reads, members, events)
    for member in members:
        # Quix Streams makes a last checkpoint upon SIGTERM, and ends.
        member.terminate()
    for member in members:
        member.join(_END_TIMEOUT_S)
    _check_members(members)


def _run_member(task: _Task, number: int, reads: Queue[int]) -> None:
    application = Application(
        broker_address=task.bootstrap,
        consumer_group="bench-quix",
        auto_offset_reset="earliest",
        commit_every=_EVENTS_PER_CHECKPOINT,
        commit_interval=_CHECKPOINT_INTERVAL_S,
        state_dir=Path(task.state_directory) / str(number),
        auto_create_topics=False,
        loglevel="WARNING",
    )
    topic = application.topic(
        task.topic, value_deserializer=_FramedAvro(task.contract, reads)
    )
    application.dataframe(topic).sink(_ReportingSink(task, reads))
    application.run()


def _print_reads(
    reads: Queue[int], members: Sequence[BaseProcess], events: int
) -> None:
    left, since = events, 0.0
    while left > 0:
        try:
            read = reads.get(timeout=_TICK_S)
        except queue.Empty:
            if not all(member.is_alive() for member in members):
                _check_members(members)
                sys.exit("A process ended before everything was read.")
            continue
        now = time.time()
        if read:
            line = {"planned_at": since, "published_at": now, "read": read}
            sys.stdout.write(json.dumps(line) + "\n")
        if read or not since:
            since = now
        left -= read


def _check_members(members: Sequence[BaseProcess]) -> None:
    codes = [member.exitcode for member in members]
    if any(codes):
        sys.exit(f"Processes ended with codes {codes}.")


if __name__ == "__main__":
    main()
