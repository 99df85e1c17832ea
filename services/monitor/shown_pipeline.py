"""Describes pipelines for the monitor, as plain values.

The numbers have the names of ``status --json`` (docs/status.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from tallyweir.services.kafka.source_lag import lags_of
from tallyweir.services.operate.gauged import Gauged, gauges_json
from tallyweir.sinks.postgres.alerting.firing import FiringAlert
from tallyweir.sinks.postgres.audit import PipelineSummary
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

Broker = Mapping[TopicPartition, BrokerPosition] | None


def summary_json(
    found: PipelineSummary,
    broker: Broker,
    firing: Sequence[FiringAlert] = (),
    gauged: Gauged | None = None,
) -> dict[str, object]:
    """Return what the overview shows of a pipeline; unknown values are null.

    Args:
        found: Summary from the home database.
        broker: Positions of its topics in Kafka; None if Kafka does not answer.
        firing: The firing alerts of all pipelines.
        gauged: Its last gauges; None before the first round.
    """
    lags = lags_of(found.next_offsets, broker)
    lag = None if lags is None else sum(lags.values())
    held_back = (
        None if broker is None else sum(one.held_back for one in broker.values())
    )
    return {
        "pipeline": found.pipeline,
        "guarantee": found.guarantee.value,
        "topics": list(found.topics),
        "state": found.state(lag).value,
        "cause": found.cause(lag) or _held_told(held_back),
        "lag": lag,
        "held_back": held_back,
        "catch_up_s": found.catch_up_s(lag),
        "freshness_s": found.freshness_s,
        "since_commit_s": found.since_commit_s,
        "events_per_second_minute": found.recent.per_second,
        "watermark": found.watermark,
        "last_sequence": found.last_sequence,
        "in_doubt": found.in_doubt,
        "minute": asdict(found.recent),
        "receipt": found.receipt
        and {**asdict(found.receipt), "age_s": found.since_receipt_s},
        "driver": found.driver and asdict(found.driver),
        "gauges": gauged and gauges_json(gauged.gauges),
        "committed": gauged and asdict(gauged.committed),
        "alerts": [asdict(one) for one in firing if one.pipeline == found.pipeline],
    }


def _held_told(held_back: int | None) -> str | None:
    if not held_back:
        return None
    return (
        f"{held_back:,} offsets wait in Kafka behind an open transaction; tallyweir "
        "status shows whose."
    )
