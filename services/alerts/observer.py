"""Looks at all pipelines for the rules: the home database first, then Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.services.alerts.alert_rule import (
    AlertRule,
    DeadLetters,
    Observation,
    OverBudget,
    RetentionHeadroom,
)
from tallyweir.services.kafka.retention import KafkaRetention
from tallyweir.services.kafka.source_lag import lags_of, positions_of
from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.postgres.audit import (
    PipelineSummary,
    Usage,
    read_overview,
    read_usage,
)
from tallyweir.sinks.postgres.records.alert_book import (
    PipelineFacts,
    read_pipeline_facts,
)
from tallyweir.sinks.protocol.errors import TallyweirError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

#: The cost of a day changes slowly, and adding it up takes a while.
_USAGE_KEPT = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Data from the home database.

    Attributes:
        summaries: Summaries of all pipelines.
        facts: Facts by pipeline.
        usages: Usages by pipeline and span, where a rule needs them.
    """

    summaries: Sequence[PipelineSummary]
    facts: Mapping[str, PipelineFacts]
    usages: Mapping[tuple[str, timedelta], Usage]

    @property
    def now(self) -> datetime | None:
        """The database's clock; None without a pipeline."""
        return self.summaries[0].observed_at if self.summaries else None


class Observer:
    """Makes observations.

    Args:
        bootstrap: ``host:port``, several separated by commas.
        rules: The rules that judge the observations.
    """

    def __init__(self, bootstrap: str, rules: Iterable[AlertRule]) -> None:
        self._bootstrap = bootstrap
        self._rules = tuple(rules)
        self._retention = KafkaRetention(bootstrap)
        self._usages: Mapping[tuple[str, timedelta], Usage] = {}

    def read_home(self, connection: Connection[TupleRow]) -> Found:
        """Read the data of the home database that the rules need.

        Raises:
            ConfigurationError: ``LEDGER_MISSING``, or a table may not be read.
            RetryableError: The server went away.
        """
        spans = {one.over for one in self._rules if isinstance(one, DeadLetters)}
        summaries = read_overview(connection)
        return Found(
            summaries=summaries,
            facts=read_pipeline_facts(connection, sorted(spans)),
            usages=self._read_usages(connection, summaries),
        )

    def _read_usages(
        self, connection: Connection[TupleRow], summaries: Sequence[PipelineSummary]
    ) -> Mapping[tuple[str, timedelta], Usage]:
        """Read the usages that budget rules need, unless the last ones are recent."""
        wanted = {
            (one.pipeline, rule.over): one.observed_at
            for one in summaries
            for rule in self._rules
            if isinstance(rule, OverBudget) and rule.is_about(one.pipeline)
        }
        self._usages = {
            key: known
            if (known := self._usages.get(key)) and now - known.ended_at < _USAGE_KEPT
            else read_usage(connection, key[0], span=key[1])
            for key, now in wanted.items()
        }
        return self._usages

    def observe(
        self, found: Found
    ) -> tuple[Sequence[Observation], Sequence[TallyweirError]]:
        """Ask Kafka, and put the observations together.

        Returns:
            An observation of each pipeline, and the errors of Kafka.
        """
        topics = {topic for one in found.summaries for topic in one.topics}
        broker, troubles = KafkaAdmin(self._bootstrap, *topics).read_there()
        told = list(troubles)
        return [
            self._observe_one(
                one,
                found.facts.get(one.pipeline),
                broker,
                told,
                usages={
                    span: usage
                    for (pipeline, span), usage in found.usages.items()
                    if pipeline == one.pipeline
                },
            )
            for one in found.summaries
        ], told

    def _observe_one(
        self,
        found: PipelineSummary,
        facts: PipelineFacts | None,
        broker: Mapping[TopicPartition, BrokerPosition] | None,
        troubles: list[TallyweirError],
        usages: Mapping[timedelta, Usage],
    ) -> Observation:
        positions = positions_of(found.topics, broker)
        lags = lags_of(found.next_offsets, positions)
        headroom_s = None
        # Do not wait for a silent broker again with each pipeline.
        is_silent = any(one.code == "KAFKA_UNREACHABLE" for one in troubles)
        if (
            positions is not None
            and not is_silent
            and self._needs_headroom(found.pipeline)
        ):
            try:
                headroom_s = self._retention.read_unread(
                    found.next_offsets, positions, found.observed_at
                ).headroom_s
            except TallyweirError as error:
                troubles.append(error)
        driver = found.driver
        return Observation(
            pipeline=found.pipeline,
            observed_at=found.observed_at,
            last_sequence=found.last_sequence,
            lag=None if lags is None else sum(lags.values()),
            freshness_s=found.freshness_s,
            dead_shares={} if facts is None else facts.dead_shares,
            in_doubt_s=0.0 if facts is None else facts.in_doubt_s,
            headroom_s=headroom_s,
            is_driver_gone=driver is not None
            and not driver.is_connected
            # A batch run ends by itself.
            and driver.run is None,
            usages=usages,
            paused_s=None
            if found.pause is None
            else _seconds(found.observed_at - found.pause.paused_at),
        )

    def _needs_headroom(self, pipeline: str) -> bool:
        return any(
            isinstance(rule, RetentionHeadroom) and rule.is_about(pipeline)
            for rule in self._rules
        )


def _seconds(span: timedelta) -> float:
    return max(0.0, span.total_seconds())
