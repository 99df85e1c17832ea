"""Runs the relay until it is told to stop: as the home's relay, or standing by.

``docs/metrics.md`` has the formulas of its metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from tallyweir.services.process.repeating_service import TenuredService
from tallyweir.services.relay.messages import (
    Message,
    dead_letter_message,
    outbox_message,
)
from tallyweir.services.relay.offset_mirror import OffsetMirror
from tallyweir.services.relay.stream_producer import RelayTopics, StreamProducer
from tallyweir.sinks.postgres.records.relay_feed import (
    DEAD_LETTERS,
    OUTBOX,
    DeadLetter,
    OutboxMessage,
    RelayFeed,
    RelayPlace,
)
from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.protocol.offsets import TopicPartition

#: After this long without a finished round, the relay is not ready: it cannot reach the
#: home database.
SILENCE_MAX_S = 60.0


class RelayService(TenuredService[RelayFeed]):
    """The relay of a home database.

    Args:
        home_dsn: libpq connection string of the home database.
        bootstrap: ``host:port``, several separated by commas.
        every_s: Seconds from the start of one round to the start of the next.
        metrics: Metrics to update.
    """

    def __init__(
        self, home_dsn: str, bootstrap: str, *, every_s: float, metrics: RelayMetrics
    ) -> None:
        super().__init__(
            "relay", every_s=every_s, silence_max_s=SILENCE_MAX_S, metrics=metrics
        )
        self._home_dsn = home_dsn
        self._bootstrap = bootstrap
        self._metrics = metrics

    def _open_session(self) -> RelayFeed:
        return RelayFeed(self._home_dsn)

    def _make_tenure(self, session: RelayFeed) -> RelayTenure:
        return RelayTenure(
            session, self._bootstrap, self._metrics, is_stopped=self._stop.is_set
        )


#: Most messages and bytes of one Kafka transaction: few enough to be sent well within
#: its time, many enough that its cost does not matter.
MESSAGES_MAX = 2_000
BYTES_MAX = 16_000_000


class RelayTenure:
    """Sends waiting messages and moves the cursors, pipeline by pipeline.

    Invariant: a relay reads a message from the home only after it has created the
    stream's producer, and through the session that holds the lock. So before a
    successor reads anything, its producer has fenced the older relay, which can no
    longer send.

    Args:
        feed: Reads the home through the connection that holds the lock.
        bootstrap: ``host:port``, several separated by commas.
        metrics: Metrics, updated after each step.
        is_stopped: Called before each chunk; True ends the round.
    """

    def __init__(
        self,
        feed: RelayFeed,
        bootstrap: str,
        metrics: RelayMetrics,
        *,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._feed = feed
        self._bootstrap = bootstrap
        self._metrics = metrics
        self._is_stopped = is_stopped
        self._installation = feed.read_installation()
        self._topics = RelayTopics(bootstrap)
        self._mirror = OffsetMirror(bootstrap)
        self._producers: dict[str, StreamProducer] = {}
        self._log = structlog.get_logger()

    def run_round(self) -> list[str]:
        """Send the waiting messages and show the committed offsets.

        A failure of one pipeline is logged and does not stop the others.

        Returns:
            Codes of the errors that were logged.

        Raises:
            TallyweirError: The session with the home has ended, and with it the lock.
        """
        failures = []
        pipelines = self._feed.list_pipelines()
        self._metrics.show_only(pipelines)
        for pipeline in pipelines:
            for stream in (DEAD_LETTERS, OUTBOX):
                failures += self._attempt(pipeline, partial(self._relay, stream=stream))
        for pipeline, committed in self._feed.read_visible_offsets().items():
            show = partial(self._show, committed=committed)
            failures += self._attempt(pipeline, show)
        return failures

    def _attempt(self, pipeline: str, work: Callable[[str], None]) -> list[str]:
        if self._is_stopped():
            return []
        try:
            work(pipeline)
        except TallyweirError as error:
            if not self._feed.is_open:
                raise
            self._metrics.failures.labels(error.code).inc()
            self._log.error(
                "pipeline not relayed",
                pipeline=pipeline,
                error_code=error.code,
                saw=error.saw,
                why=error.why,
                fix=error.fix,
            )
            return [error.code]
        return []

    def _relay(self, pipeline: str, *, stream: str) -> None:
        """Send all waiting messages of one stream of a pipeline.

        Crash:
            Before the broker's commit, nothing was sent. Between the commit and the
            cursor's move, the next relay sends the chunk again, under the same IDs and
            in the same order.
        """
        backlog = self._metrics.backlog.labels(pipeline, stream)
        waiting = self._feed.count_backlog(pipeline, stream)
        backlog.set(waiting)
        if not waiting:
            return
        try:
            sent = self._send_all(pipeline, stream)
        except TallyweirError:
            # The outcome of its transaction is unknown until its successor has ended
            # it.
            self._producers.pop(pipeline, None)
            self._topics.forget()
            raise
        if sent:
            backlog.set(self._feed.count_backlog(pipeline, stream))
            self._log.info(
                "messages sent", pipeline=pipeline, stream=stream, messages=sent
            )

    def _send_all(self, pipeline: str, stream: str) -> int:
        producer = self._producer_of(pipeline)
        sent = 0
        while not self._is_stopped():
            after = self._feed.read_cursor(pipeline, stream)
            messages, last = self._read(pipeline, stream, after)
            if not messages:
                break
            producer.send(messages)
            self._metrics.messages.labels(pipeline, stream).inc(len(messages))
            self._feed.move_cursor(
                pipeline, stream, after=after, to=last, messages=len(messages)
            )
            sent += len(messages)
        return sent

    def _read(
        self, pipeline: str, stream: str, after: RelayPlace
    ) -> tuple[list[Message], RelayPlace]:
        """Return the next messages of a stream, and the place of the last of them."""
        if stream == DEAD_LETTERS:
            letters = self._feed.read_dead_letters(
                pipeline, after, messages_max=MESSAGES_MAX, bytes_max=BYTES_MAX
            )
            write = partial(
                dead_letter_message, pipeline=pipeline, installation=self._installation
            )
            return [write(one) for one in letters], _last(letters, after)
        waiting = self._feed.read_outbox(
            pipeline, after, messages_max=MESSAGES_MAX, bytes_max=BYTES_MAX
        )
        send = partial(
            outbox_message, pipeline=pipeline, installation=self._installation
        )
        return [send(one) for one in waiting], _last(waiting, after)

    def _producer_of(self, pipeline: str) -> StreamProducer:
        if pipeline not in self._producers:
            self._producers[pipeline] = StreamProducer(
                self._bootstrap,
                f"tallyweir-relay-{self._installation}-{pipeline}",
                self._topics,
            )
        return self._producers[pipeline]

    def _show(self, pipeline: str, committed: Mapping[TopicPartition, int]) -> None:
        metric = self._metrics.drift.labels(pipeline)
        try:
            self._mirror.show(pipeline, committed)
        finally:
            metric.set(self._mirror.drift(pipeline, committed))


def _last(
    read: Sequence[DeadLetter] | Sequence[OutboxMessage], after: RelayPlace
) -> RelayPlace:
    return read[-1].place if read else after


class RelayMetrics:
    """The relay's own metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._shown: set[str] = set()
        self.messages = Counter(
            "tallyweir_relay_messages",
            "Messages that the broker has acknowledged, repeats included.",
            ["pipeline", "stream"],
            registry=self.registry,
        )
        self.backlog = Gauge(
            "tallyweir_relay_backlog_rows",
            "Rows of the home database that are still to be sent.",
            ["pipeline", "stream"],
            registry=self.registry,
        )
        self.drift = Gauge(
            "tallyweir_offset_mirror_drift_records",
            "Records by which the advisory group is off after the last round.",
            ["pipeline"],
            registry=self.registry,
        )
        self.active = Gauge(
            "tallyweir_relay_active",
            "1 while this process is the home's relay, 0 while it stands by.",
            registry=self.registry,
        )
        self.failures = Counter(
            "tallyweir_relay_failures",
            "Rounds of a pipeline, or of all, that an error cut short.",
            ["error_code"],
            registry=self.registry,
        )

    def show_only(self, pipelines: Iterable[str]) -> None:
        """Remove the gauges of pipelines that are gone; they would keep old values."""
        known = set(pipelines)
        for gone in self._shown - known:
            self.backlog.remove_by_labels({"pipeline": gone})
            self.drift.remove(gone)
        self._shown = known
