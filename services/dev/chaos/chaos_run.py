"""A whole run: servers, senders, drivers, faults, the quiet after them, the verdict."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tallyweir.services.dev.chaos.chaos_report import ChaosReport, read_git_commit
from tallyweir.services.dev.chaos.chaos_world import (
    PIPELINE,
    TOPIC,
    ChaosWorld,
    chaos_world,
)
from tallyweir.services.dev.chaos.invariants import Witnesses
from tallyweir.services.dev.chaos.nemesis import Nemesis
from tallyweir.services.dev.chaos.observed_run import (
    Connections,
    observe,
    read_prepared,
)
from tallyweir.services.dev.chaos.plan import HOME, ChaosOptions, ChaosPlan, write_plan
from tallyweir.services.dev.chaos.self_test import as_violations, run_self_test
from tallyweir.services.dev.chaos.sender import Gate, Sender, SharedTransactions
from tallyweir.services.dev.chaos.sent_log import SentLog
from tallyweir.services.dev.chaos.snapshots import SnapshotReader
from tallyweir.services.dev.chaos.supervisor import PATIENCE_S, Supervisor
from tallyweir.services.dev.chaos.verdict import (
    has_failed,
    judge_driver_ends,
    judge_prepared,
    judge_receipt,
    judge_replay,
    judge_sent_log,
    judge_snapshots,
    judge_tables,
    measure_recovery,
    outside_of_chaos,
)
from tallyweir.services.dev.chaos.workload import RecordKind, Workload, count_records
from tallyweir.services.kafka.topic_log import count_committed
from tallyweir.services.operate.spark_process import run_replay
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres.audit import Check, Receipt, verify
from tallyweir.sinks.postgres.audit.receipt import judge
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import FatalError
from tallyweir.sinks.protocol.offsets import OffsetRange

_SQL = load_statements("tallyweir.services.dev.chaos", "snapshot.sql")

#: Two, so that their transactions interleave in the partitions.
_SENDERS = 2
_POLL_S = 0.1

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The parts that work in a world while faults come."""

    log: SentLog
    senders: tuple[Sender, ...]
    supervisor: Supervisor
    reader: SnapshotReader
    nemesis: Nemesis


def run_chaos(options: ChaosOptions, tell: Tell, *, keep: bool) -> ChaosReport:
    """Run chaos in a fresh world, and judge what is left of it.

    Args:
        options: The options of the run.
        tell: Called with lines about its progress.
        keep: Whether the run's files stay.

    Raises:
        FatalError: ``CHAOS_STUCK``: the pipeline did not go on.
        RetryableError: A server did not start.
    """
    started = time.monotonic()
    plan = write_plan(options, records=count_records(options.events))
    with chaos_world(plan, keep=keep) as world:
        tell(f"Kafka and {options.databases} Postgres run in {world.directory}")
        with _working(world, plan, tell, keep=keep) as parts:
            parts.nemesis.run()
            tell("all faults are injected; letting the pipeline read to the end")
            _await_end(world, parts)
            with _connections(world) as connections:
                _await_resolved(connections)
            if not parts.supervisor.drain():
                raise _stuck("the drivers did not drain")
            parts.reader.stop()
            tell("drained; checking")
            with _connections(world) as connections:
                return _judge(world, plan, parts, connections, started=started)


@contextmanager
def _working(
    world: ChaosWorld, plan: ChaosPlan, tell: Tell, *, keep: bool
) -> Iterator[_Parts]:
    """Let drivers, senders and the reader work in the block."""
    with ExitStack() as stack:
        log = SentLog()
        if keep:
            stack.callback(log.save_committed, world.directory / "sent.jsonl")
        gate = Gate()
        workload = Workload(
            world.writer_at,
            events=plan.options.events,
            seed=plan.options.seed,
        )
        transactions = SharedTransactions(workload.transactions())
        senders = tuple(
            Sender(
                name=f"chaos-{number}",
                bootstrap=world.kafka.bootstrap,
                topic=TOPIC,
                transactions=transactions,
                gate=gate,
                log=log,
            )
            for number in range(_SENDERS)
        )
        supervisor = Supervisor(
            world.pipeline_file, world.directory, world.driver_environment, tell
        )
        reader = SnapshotReader(world, tell)
        nemesis = Nemesis(
            world, plan, supervisor, gate, lambda: reader.records_read, tell
        )
        stack.callback(supervisor.close)
        stack.callback(reader.stop)
        stack.callback(_stop_senders, senders, gate)
        for sender in senders:
            sender.start()
        supervisor.start_first()
        _index_events(world)
        reader.start()
        yield _Parts(
            log=log,
            senders=senders,
            supervisor=supervisor,
            reader=reader,
            nemesis=nemesis,
        )


def _stop_senders(senders: tuple[Sender, ...], gate: Gate) -> None:
    for sender in senders:
        sender.stop()
    gate.close()
    for sender in senders:
        if sender.is_alive():
            sender.join()


def _index_events(world: ChaosWorld) -> None:
    """Let the reader find rows by their place, with an index as a user might add it."""
    for database in world.servers:
        with world.connect(database) as connection:
            connection.execute(_SQL["index_events"])


def _await_end(world: ChaosWorld, parts: _Parts) -> None:
    """Wait until the senders have sent everything and the pipeline has read it."""
    for sender in parts.senders:
        sender.join()
        if sender.failure is not None:
            raise sender.failure
    # Kafka may write a transaction's marker after it has told the producer that the
    # transaction is committed. Until then the log's stable end is before its records.
    positions = KafkaAdmin(world.kafka.bootstrap, TOPIC).read_positions()
    ends = {
        place.partition: at.log_end_offset + at.held_back
        for place, at in positions.items()
    }
    waiting = threading.Event()
    last: dict[int, int] = {}
    since = time.monotonic()
    while True:
        with world.connect() as home:
            rows = home.execute(_SQL["positions"], {"pipeline": PIPELINE})
            now: dict[int, int] = dict(rows.fetchall())
        if all(now.get(partition, 0) >= end for partition, end in ends.items()):
            return
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > PATIENCE_S:
            raise _stuck(f"the pipeline stands at {now}, Kafka ends at {ends}")
        if parts.reader.failure is not None:
            raise parts.reader.failure
        waiting.wait(_POLL_S)


def _await_resolved(connections: Connections) -> None:
    """Wait, while a driver works, until no transaction is prepared."""
    began = time.monotonic()
    waiting = threading.Event()
    while read_prepared(connections) and time.monotonic() - began < PATIENCE_S:
        waiting.wait(_POLL_S)


@contextmanager
def _connections(world: ChaosWorld) -> Iterator[Connections]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(world.connect(name)) for name in world.servers}


def _judge(
    world: ChaosWorld,
    plan: ChaosPlan,
    parts: _Parts,
    connections: Connections,
    *,
    started: float,
) -> ChaosReport:
    sent = parts.log.read_committed()
    found = observe(connections)
    witnesses = Witnesses(
        seen=parts.reader.batches,
        changed=parts.reader.changed_batches,
        told=parts.supervisor.published,
    )
    tables = judge_tables(sent, found, witnesses)
    left = read_prepared(connections)
    noticed = run_self_test(
        connections,
        lambda spoilt: has_failed(judge_tables(sent, spoilt, witnesses)),
        seed=plan.options.seed,
    )
    checks: tuple[Check, ...] = (
        *tables,
        judge_snapshots(parts.reader.snapshots, parts.reader.fractured, sent),
        judge_prepared(
            left, databases=len(connections), seconds=parts.reader.in_doubt_s
        ),
        judge_driver_ends(parts.supervisor.ends, found.claims),
        judge_sent_log(len(sent), _count_in_kafka(world)),
        judge_receipt(_verify(world)),
        judge_replay(run_replay(world.pipeline_file, world.replay_environment)),
        judge(
            "checker_self_test",
            checked=len(noticed),
            unit="kinds of damage",
            violations=as_violations(noticed),
        ),
        *outside_of_chaos(),
    )
    kinds = Counter(record.kind for record in sent.values())
    return ChaosReport(
        plan=plan,
        git=read_git_commit(),
        harm=parts.nemesis.harm,
        events={
            "sent": len(sent) + parts.log.count_aborted(),
            "unique": kinds[RecordKind.EVENT],
            "duplicate": kinds[RecordKind.REPEAT],
            "bad": kinds[RecordKind.UNDECODABLE] + kinds[RecordKind.RULE_BREAKER],
            "aborted": parts.log.count_aborted(),
        },
        transactions=parts.log.count_transactions(),
        checks=tuple(sorted(checks, key=_order)),
        snapshots=len(parts.reader.snapshots),
        recovery=measure_recovery(parts.nemesis.harm.deaths, found.batches),
        prepared_left=sum(len(gids) for gids in left.values()),
        batches=len(found.batches),
        staged_by_tasks=sum(told.has_tasks for told in parts.supervisor.published),
        drivers=parts.supervisor.starts,
        seconds=time.monotonic() - started,
    )


def _order(check: Check) -> tuple[int, str]:
    """Sort numbered invariants first, by their number."""
    head = check.name.split("_", 1)[0]
    is_numbered = head.startswith("I") and head[1:].isdecimal()
    return (int(head[1:]) if is_numbered else 99, check.name)


def _count_in_kafka(world: ChaosWorld) -> int:
    bootstrap = world.kafka.bootstrap
    ranges = [
        OffsetRange(
            topic_partition=place,
            from_offset=position.log_start_offset,
            until_offset=position.log_end_offset,
        )
        for place, position in KafkaAdmin(bootstrap, TOPIC).read_positions().items()
    ]
    return sum(count_committed(bootstrap, ranges))


def _verify(world: ChaosWorld) -> Receipt:
    dsn = world.servers[HOME].dsn
    with connect(dsn, application_name="tallyweir chaos") as home:
        return verify(home, PIPELINE, world.participants)


def _stuck(what: str) -> FatalError:
    return FatalError(
        "CHAOS_STUCK",
        saw=f"{what}, after {PATIENCE_S:.0f} s.",
        why="The pipeline must go on by itself after every fault.",
        fix="Run again with --keep and read the drivers' logs.",
    )
