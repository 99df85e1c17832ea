"""A steady load for half an hour, at 80 % of the most that the pipeline sustains.

The load program shares the machine with the pipeline, so the benchmark finds the most
that the pipeline sustains in the same run. For up to two minutes the load program keeps
a backlog of a few batches, and the ledger says how much was committed per second. Then
the pipeline reads the backlog. For the rest of the run the load program sends at 80 %
of that rate, whether the pipeline keeps up or not.

Every ten seconds the benchmark samples memory by process, rate, lag, and the catalog of
seen IDs. The horizon is an hour of event time, so the catalog reaches its
full size within minutes; then old buckets expire as new ones begin.

At the end the pipeline must have read everything, committed each event once and counted
each repeat, and ``verify`` must find no problem. If the disk cannot hold all rows, they
are counted and dropped part by part (``RowParts``). Then ``verify`` cannot find the
rows, but each of its other checks must hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

import psutil
import psycopg

from tallyweir.services.dev.bench.soak.soak_figures import (
    WITHIN,
    Sample,
    expected_ids,
    judge,
    rate_while_loaded,
    spans_of,
)
from tallyweir.services.dev.bench.soak.soak_world import (
    HORIZON_S,
    ROWS_PER_PART,
    RowParts,
    RunningLoad,
    Sent,
    create_topic,
    needs_of,
    running_load,
)
from tallyweir.services.dev.bench.world.bench_world import (
    PAGE_VIEWS,
    TOPIC,
    BenchPipeline,
    bench_servers,
    check_room,
    free_bytes,
    incomplete_run,
    varied,
)
from tallyweir.services.dev.bench.world.driver_run import (
    check_rows,
    check_verified,
    read_batches,
    running_driver,
    wrong_result,
)
from tallyweir.services.dev.bench.world.resource_readings import (
    memory_of,
    read_catalog_bytes,
)
from tallyweir.services.local.embedded.state_directory import state_directory
from tallyweir.services.process.driver_process import DriverProcess
from tallyweir.services.process.endpoints import Endpoints
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import FatalError

_SQL = load_statements("tallyweir.services.dev.bench.soak", "soak.sql")

#: The rate of the load, as a share of the most that the pipeline sustains.
SHARE = 0.8
_WARM_UP_EVENTS = 3_000_000
#: Messages that wait while the most is measured: one batch is being published, one is
#: being staged, and two wait to be planned.
_BACKLOG = 2_000_000
_MAXIMUM_S_MAX = 120.0
_SETTLING_S_MAX = 60.0
_SAMPLE_S = 10.0
_POLL_S = 0.1
#: The run fails if the pipeline reads fewer messages per second.
_RATE_MIN = 2_000
_START_TIMEOUT_S = 600.0
#: The most that a pipeline is expected to sustain, for the check of the disk before.
_EXPECTED_RATE = 150_000
#: Checks of ``verify`` that need the rows.
_CHECKS_OF_ROWS = {"append_outputs"}


@dataclass(kw_only=True)
class _Soak:
    """A run in progress."""

    endpoints: Endpoints
    pipeline: BenchPipeline
    driver: DriverProcess
    load: RunningLoad
    topic: KafkaAdmin
    say: Callable[[str], None]
    #: None as long as no rows are dropped.
    parts: RowParts | None = None
    samples: list[Sample] = field(default_factory=list)

    def count_read(self) -> int:
        """Count the messages of all published batches.

        Raises:
            FatalError: The driver has ended.
        """
        if self.driver.exit_code is not None:
            raise incomplete_run(
                "The driver has ended.",
                fix="Run the pipeline by hand to see its messages.",
            )
        with connect(self.endpoints.home_dsn, application_name="bench") as connection:
            try:
                ((read,),) = connection.execute(
                    _SQL["progress"], {"pipeline": self.pipeline.name}
                ).fetchall()
            except psycopg.errors.UndefinedTable:
                return 0
        return int(read)

    def count_sent(self) -> int:
        """Count the messages that the broker has ever received."""
        positions = self.topic.read_positions().values()
        return sum(position.log_end_offset for position in positions)

    def keep_backlog(self, *, until: Callable[[int], bool], timeout_s: float) -> None:
        """Keep a backlog of messages until ``until`` accepts the number read."""
        deadline = time.monotonic() + timeout_s
        while not until(read := self.count_read()):
            if time.monotonic() > deadline:
                raise _too_slow(read)
            self.load.allow(read + _BACKLOG)
            time.sleep(_POLL_S)

    def read_all(self, *, timeout_s: float) -> int:
        """Wait until the pipeline has read all messages; return their number."""
        deadline = time.monotonic() + timeout_s
        while (read := self.count_read()) < (sent := self.count_sent()):
            if time.monotonic() > deadline:
                raise _too_slow(read)
            time.sleep(_POLL_S)
        return sent

    def hold(self, *, rate: float, seconds: float) -> float:
        """Send at a steady rate and sample every ten seconds; return the start time.

        A thread of its own takes the samples, so they never delay the load.
        """
        sent = self.count_sent()
        began = time.monotonic()
        looking: Future[None] | None = None
        with ThreadPoolExecutor(1, thread_name_prefix="soak-looks") as looks:
            next_look = began
            while (now := time.monotonic()) < began + seconds:
                self.load.allow(sent + rate * (now - began))
                if looking is not None and looking.done():
                    looking.result()
                    looking = None
                if now >= next_look and looking is None:
                    looking = looks.submit(self._look, began)
                    next_look += _SAMPLE_S
                time.sleep(_POLL_S)
            if looking is not None:
                looking.result()
        return began

    def _look(self, began: float) -> None:
        sample = self.take_sample()
        self.samples.append(sample)
        self.say(
            f"{sample.at - began:5.0f} s: {sample.lag:,} messages wait, "
            f"{sample.flat_bytes / 1e6:,.0f} MB, {sample.ids:,} IDs"
        )
        if self.parts is not None:
            self.parts.drop_some(self.totals()[1])

    def take_sample(self) -> Sample:
        """Measure progress, memory and catalog."""
        read = self.count_read()
        with connect(self.endpoints.home_dsn, application_name="bench") as connection:
            ((ids, committed, watermark, bucket_seconds),) = connection.execute(
                _SQL["catalog"], {"pipeline": self.pipeline.name}
            ).fetchall()
        return Sample(
            at=time.monotonic(),
            sent=self.count_sent(),
            read=read,
            memory_bytes=memory_of(psutil.Process(self.driver.pid), self.pipeline),
            ids=ids,
            expected_ids=expected_ids(
                committed,
                watermark_s=watermark,
                horizon_s=HORIZON_S,
                bucket_seconds=bucket_seconds,
            ),
            catalog_bytes=read_catalog_bytes(
                self.endpoints.home_dsn, self.pipeline.name
            ),
        )

    def totals(self) -> tuple[int, int, int]:
        """Return how many events the ledger counts as read, committed and duplicate."""
        with connect(self.endpoints.home_dsn, application_name="bench") as connection:
            ((read, committed, repeats),) = connection.execute(
                _SQL["totals"], {"pipeline": self.pipeline.name}
            ).fetchall()
        return int(read), int(committed), int(repeats)


def measure(
    *, minutes: float, seed: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Hold a load for ``minutes``, and compare its first third with its last.

    Raises:
        ConfigurationError: ``BENCH_ROOM``.
        FatalError: A program ended, or the result is wrong.
    """
    seconds = 60 * minutes
    _check_room(seconds, rate=_EXPECTED_RATE * SHARE)
    maximum_s = min(_MAXIMUM_S_MAX, seconds / 2)
    settling_s = min(_SETTLING_S_MAX, seconds / 6)
    with bench_servers() as endpoints:
        pipeline = varied(
            PAGE_VIEWS,
            "soak",
            keys={"deduplicate": {"horizon": f"{HORIZON_S} seconds"}},
        )
        create_topic(endpoints.kafka_bootstrap)
        with ExitStack() as running:
            soak = _Soak(
                endpoints=endpoints,
                pipeline=pipeline,
                driver=running.enter_context(running_driver(endpoints, pipeline)),
                load=running.enter_context(running_load(endpoints, seed=seed)),
                topic=KafkaAdmin(endpoints.kafka_bootstrap, TOPIC),
                say=say,
            )
            maximum = _find_maximum(soak, seconds=maximum_s)
            rate = SHARE * maximum
            say(f"at most {maximum:,.0f} events/s; sending {rate:,.0f}/s")
            began = _hold(soak, rate=rate, seconds=seconds)
            sent = soak.load.end()
            say("reading the rest")
            soak.read_all(timeout_s=sent.messages / _RATE_MIN)
        _check(soak, sent)
    spans = spans_of(soak.samples, began=began)
    compared, holds = judge(spans, settling_s=settling_s, rate=rate)
    return {
        "minutes": minutes,
        "maximum_events_per_second": round(maximum),
        "share": SHARE,
        "rate": round(rate),
        "thirds": compared,
        "bars": {"within": WITHIN},
        "within_bars": holds,
        "settling_seconds": settling_s,
        "horizon_seconds": HORIZON_S,
        "sent": sent.messages,
        "distinct": sent.distinct,
        "sending_us_per_event": round(
            sent.processor_seconds / sent.messages * 1_000_000, 2
        ),
        "rows_dropped": 0 if soak.parts is None else soak.parts.rows,
        "verified": True,
        "seed": seed,
        "over_time": spans,
    }


def _find_maximum(soak: _Soak, *, seconds: float) -> float:
    """Measure the events per second while messages always wait."""
    soak.say("warming up")
    soak.keep_backlog(
        until=lambda read: read >= _WARM_UP_EVENTS,
        timeout_s=_START_TIMEOUT_S + _WARM_UP_EVENTS / _RATE_MIN,
    )
    soak.say(f"measuring the most that is sustained, {seconds:.0f} s")
    began = time.time()
    soak.keep_backlog(
        until=lambda _read: time.time() >= began + seconds, timeout_s=2 * seconds
    )
    batches = read_batches(soak.endpoints.home_dsn, soak.pipeline)
    return rate_while_loaded(batches, begin=began, end=began + seconds)


def _hold(soak: _Soak, *, rate: float, seconds: float) -> float:
    """Wait until the backlog is read, check the disk space, and hold the load."""
    soak.read_all(timeout_s=_BACKLOG / _RATE_MIN)
    if not _check_room(seconds, rate=rate):
        soak.say(
            "the disk cannot hold all rows; they are counted and dropped part by part"
        )
        soak.parts = RowParts(
            soak.endpoints.home_dsn, soak.pipeline, rows_per_part=ROWS_PER_PART
        )
        # Drop the rows of the search for the maximum now: counting them takes a while.
        soak.parts.drop_all()
    return soak.hold(rate=rate, seconds=seconds)


def _check_room(seconds: float, *, rate: float) -> bool:
    """Check that a run fits on the disk; return whether all of its rows do as well.

    Raises:
        ConfigurationError: ``BENCH_ROOM``.
    """
    free = free_bytes(state_directory())
    kept, dropped = (
        needs_of(seconds * rate, rate=rate, keeps_rows=keeps) for keeps in (True, False)
    )
    check_room(free, dropped, fix="Free disk space, or measure fewer --minutes.")
    return sum(kept.values()) <= free


def _check(soak: _Soak, sent: Sent) -> None:
    """Check that the run neither lost nor doubled an event.

    Raises:
        FatalError: ``BENCH_WRONG``.
    """
    found = soak.totals()
    wanted = (sent.messages, sent.distinct, sent.messages - sent.distinct)
    if found != wanted:
        raise wrong_result(
            f"The ledger has {found} messages, events and repeats instead of {wanted}."
        )
    dsn = soak.endpoints.home_dsn
    if soak.parts is None:
        check_rows([dsn], soak.pipeline.table, rows=sent.distinct)
        check_verified(dsn, soak.pipeline)
        return
    soak.parts.drop_all()
    if soak.parts.rows != sent.distinct:
        raise wrong_result(
            f"There were {soak.parts.rows} rows for {sent.distinct} events."
        )
    with connect(dsn, application_name="bench") as connection:
        receipt = verify(connection, soak.pipeline.name)
    failed = [one for one in receipt.failed if one.name not in _CHECKS_OF_ROWS]
    if failed:
        raise wrong_result(f"verify failed: {failed}.")


def _too_slow(read: int) -> FatalError:
    return incomplete_run(
        f"Only {read} messages were read.", fix="Measure on a quieter machine."
    )
