"""What the overview shows follows from what was read, and what is unknown is null."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tallyweir.services.monitor.watcher import summary_json
from tallyweir.sinks.postgres.audit import KeptReceipt, PipelineSummary
from tallyweir.sinks.postgres.audit.status.overview import LockWait, RecentCounts
from tallyweir.sinks.postgres.audit.status.progress import DriverStatus
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition

_NOW = datetime(2026, 11, 24, tzinfo=UTC)
_PLACE = TopicPartition("orders", 0)
_FOUND = PipelineSummary(
    pipeline="orders",
    guarantee=Guarantee.EXACTLY_ONCE,
    topics=("orders",),
    observed_at=_NOW,
    watermark=None,
    newest_event_time=_NOW - timedelta(seconds=7),
    last_sequence=9,
    visible_through=9,
    last_published_at=_NOW - timedelta(seconds=90),
    next_offsets={_PLACE: 40},
    recent=RecentCounts(
        batches=2,
        read=600,
        committed=600,
        duplicate=0,
        dead=0,
        late=0,
        expired=0,
        filtered=0,
    ),
    driver=DriverStatus(
        epoch=3, host="here", process_id=7, claimed_at=_NOW, is_connected=True
    ),
    wait=None,
    pause=None,
    drain=None,
)
_WAIT = LockWait(
    seconds=61.4,
    relation="orders",
    process_id=4711,
    holder="psql",
    holder_role="anna",
)


def _broker(end: int) -> dict[TopicPartition, BrokerPosition]:
    return {
        _PLACE: BrokerPosition(topic_id="t", log_start_offset=0, log_end_offset=end)
    }


def test_what_is_left_is_caught_up_with_at_the_rate_of_the_last_minute() -> None:
    """600 records in 60 s are ten a second."""
    shown = summary_json(_FOUND, _broker(140))
    assert (shown["lag"], shown["catch_up_s"]) == (100, 10.0)
    assert shown["freshness_s"] == 7.0


def test_nothing_is_said_of_lag_while_kafka_is_silent() -> None:
    """And a pipeline whose lag is unknown is not caught up."""
    shown = summary_json(_FOUND, None)
    assert shown["lag"] is None
    assert shown["catch_up_s"] is None
    assert shown["state"] == "STALLED"
    assert shown["cause"] == "Kafka does not answer."


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (
            replace(_FOUND, wait=_WAIT),
            (
                "It has waited 61 s for a lock on orders that process 4711 of anna "
                "(psql) holds."
            ),
        ),
        (
            replace(_FOUND, wait=replace(_WAIT, process_id=0, relation=None)),
            "It waits for a lock that a prepared transaction holds.",
        ),
        (
            replace(_FOUND, visible_through=7),
            (
                "Batch 8 is decided and not committed in every database; tallyweir "
                "indoubt list says where."
            ),
        ),
    ],
)
def test_a_stalled_pipeline_says_what_keeps_it(
    found: PipelineSummary, cause: str
) -> None:
    """The first thing that fits."""
    shown = summary_json(found, _broker(140))
    assert (shown["state"], shown["cause"]) == ("STALLED", cause)


def test_a_pipeline_that_moves_has_no_cause() -> None:
    """Whatever somebody waits for at the moment."""
    found = replace(_FOUND, last_published_at=_NOW, moved_at=_NOW, wait=_WAIT)
    shown = summary_json(found, _broker(140))
    assert (shown["state"], shown["cause"]) == ("RUNNING", None)


@pytest.mark.parametrize("lag_known", [True, False])
@pytest.mark.parametrize("moved_s", [None, 61.0])
def test_what_does_not_move_is_never_green(
    *, lag_known: bool, moved_s: float | None
) -> None:
    """Neither records that wait nor their unknown number, whatever else is published.

    Batches that only fire timers are published all the time, and move nothing.
    """
    moved_at = None if moved_s is None else _NOW - timedelta(seconds=moved_s)
    found = replace(_FOUND, last_published_at=_NOW, moved_at=moved_at)
    shown = summary_json(found, _broker(140) if lag_known else None)
    assert shown["state"] == "STALLED"
    cause = (
        "Timers fire, but the driver reads nothing"
        if lag_known
        else "Kafka does not answer"
    )
    assert str(shown["cause"]).startswith(cause)


def test_a_receipt_has_an_age() -> None:
    """By the home's clock, as all that is shown beside it."""
    receipt = KeptReceipt(
        is_verified=True,
        summary="It holds.",
        batches=9,
        taken_at=_NOW - timedelta(minutes=3),
        taken_by="anna",
    )
    shown = summary_json(replace(_FOUND, receipt=receipt), _broker(40))
    told = shown["receipt"]
    assert isinstance(told, dict)
    assert (told["is_verified"], told["age_s"]) == (True, 180.0)
