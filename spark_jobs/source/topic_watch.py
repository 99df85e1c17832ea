"""Check the topics of a running query, and report trouble that the query hides.

A query with nothing to read and a query that cannot read look the same from outside.
Spark's Kafka source reports nothing for minutes while the broker is away, and nothing
at all while a producer leaves a transaction open. It does not notice another topic of
the same name until that topic has grown past the offsets of the old one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from structlog.typing import FilteringBoundLogger

from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import (
    BrokerPosition,
    check_topic_identity,
    topic_ids,
)

#: Seconds between two checks.
LOOK_S = 5.0
#: Seconds until the same trouble is reported again.
REPEAT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trouble:
    """A lasting condition, with the times when it was first seen and last reported."""

    since: float
    told_at: float | None


class TopicWatch:
    """A thread that checks the topics every ``LOOK_S`` seconds within the block.

    It warns of an unreachable broker and of an open transaction. Both pass by
    themselves and leave the query as it is. If an operator must decide, it keeps the
    error in ``failure`` for the code that runs the query, and stops checking.

    Args:
        admin: Asks the broker about the topics.
        topic_ids: For each topic, the id that the stored offsets belong to.
        log: Where warnings go.
        on_positions: Called with the positions of the topics that the offsets belong
            to, after each check.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        topic_ids: Mapping[str, str],
        log: FilteringBoundLogger,
        *,
        on_positions: Callable[[Mapping[TopicPartition, BrokerPosition]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin = admin
        self._topic_ids = topic_ids
        self._log = log
        self._on_positions = on_positions
        self._clock = clock
        self._ended = threading.Event()
        # A daemon thread, because it may wait for a broker when the process must end.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._outage: _Trouble | None = None
        self._held: dict[TopicPartition, tuple[int, _Trouble]] = {}
        self._is_missing = False
        self.failure: TallyweirError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def look(self) -> None:
        """Ask the broker once, and report trouble that is new or still lasts."""
        began = self._clock()
        try:
            positions = self._admin.read_positions()
            if self._ended.is_set():
                return
            self._note_answer()
            check_topic_identity(self._topic_ids, topic_ids(positions))
        except RetryableError as error:
            self._note_outage(began, error)
        except ConfigurationError as error:
            self._note_refusal(error)
        else:
            self._is_missing = False
            self._note_held(positions)
            self._on_positions(positions)

    def _run(self) -> None:
        while self.failure is None and not self._ended.wait(LOOK_S):
            self.look()

    def _note_outage(self, began: float, error: RetryableError) -> None:
        if self._ended.is_set():
            return
        trouble = self._outage or _Trouble(since=began, told_at=None)
        if self._is_due(trouble):
            self._log.warning(
                "kafka unreachable",
                error_code=error.code,
                saw=error.saw,
                fix=error.fix,
                for_s=self._age_s(trouble),
            )
            trouble = replace(trouble, told_at=self._clock())
        self._outage = trouble

    def _note_answer(self) -> None:
        if self._outage is not None:
            self._log.info("kafka reachable again", away_s=self._age_s(self._outage))
            self._outage = None

    def _note_refusal(self, error: ConfigurationError) -> None:
        """Believe that a topic is missing only if two checks in a row miss it.

        A topic that is created again is missing for a moment, and then causes a better
        error.
        """
        if error.code != "TOPIC_MISSING" or self._is_missing:
            self.failure = error
        self._is_missing = True

    def _note_held(self, positions: Mapping[TopicPartition, BrokerPosition]) -> None:
        """Warn of a last stable offset that has not moved since an earlier check.

        Producers open and end transactions all the time; each end moves the offset.
        """
        held: dict[TopicPartition, tuple[int, _Trouble]] = {}
        for place, at in sorted(positions.items()):
            if not at.held_back:
                continue
            offset, trouble = self._held.get(place, (None, None))
            if trouble is None or offset != at.log_end_offset:
                trouble = _Trouble(since=self._clock(), told_at=None)
            elif self._is_due(trouble):
                self._warn_of_transaction(place, at, trouble)
                trouble = replace(trouble, told_at=self._clock())
            held[place] = at.log_end_offset, trouble
        self._held = held

    def _warn_of_transaction(
        self, place: TopicPartition, at: BrokerPosition, trouble: _Trouble
    ) -> None:
        self._log.warning(
            "transaction holds the log",
            partition=str(place),
            stable_offset=at.log_end_offset,
            end_offset=at.log_end_offset + at.held_back,
            for_s=self._age_s(trouble),
            fix="The driver cannot read past the stable offset until the producer "
            "commits or aborts; kafka-transactions.sh find-hanging names a dead one.",
        )

    def _is_due(self, trouble: _Trouble) -> bool:
        return trouble.told_at is None or self._clock() - trouble.told_at >= REPEAT_S

    def _age_s(self, trouble: _Trouble) -> float:
        return round(self._clock() - trouble.since, 1)
