"""A restore of what else a batch changes: state and timers of keys, and the outbox.

State goes back with everything else. Messages that Kafka has stay there: consumers who
go by IDs find each once, whatever the relay does while the pipeline is restored.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

from integration_tests.harness.postgres_driver import PIPELINE, TP, query
from integration_tests.harness.relayed_home import (
    Relayed,
    read_committed,
    relay_round,
    without_repeats,
)
from integration_tests.harness.restored_outputs import (
    RESULTS,
    STATE,
    TIMERS,
    KeyedPipeline,
)
from tallyweir.services.kafka.topics import ensure_topic
from tallyweir.sinks.postgres.records.relay_feed import OUTBOX, RelayFeed
from tallyweir.sinks.protocol.errors import RetryableError

_TIMEOUT_S = 60.0
#: Statements of a restore: it has counted what it will take away, and has done so.
_COUNTED = "FROM tallyweir.batch_output"
_GONE = 'DELETE FROM "tallyweir"."outbox"'
_BLOCKED = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'tallyweir relay'
  AND wait_event_type = 'Lock'
"""


@pytest.fixture
def pipeline(home_dsn: str) -> KeyedPipeline:
    """Nothing is published yet, and no relay runs."""
    return KeyedPipeline(home_dsn, f"out-{uuid.uuid4().hex[:8]}")


def test_state_and_timers_go_back_and_results_come_out_the_same(
    pipeline: KeyedPipeline,
) -> None:
    """What was added goes, what was cleared and has fired is there again."""
    queries = (STATE, TIMERS, RESULTS)
    pipeline.publish(1, 2, 3)
    pipeline.publish(4, fires=["odd"])
    pipeline.publish(5)
    before = [query(pipeline.dsn, one) for one in queries]
    assert all(before)
    pipeline.take("amid")
    pipeline.publish(6, 7, fires=["even"])
    pipeline.publish(8, fires=["odd"])
    undisturbed = [query(pipeline.dsn, one) for one in queries]
    assert all(a != b for a, b in zip(before, undisturbed, strict=True))
    for _ in range(2):
        restored = pipeline.restore("amid")
        assert restored.rows["totals"] == 5
        assert before == [query(pipeline.dsn, one) for one in queries]
        pipeline.assert_verified()
        pipeline.publish(6, 7, fires=["even"])
        pipeline.publish(8, fires=["odd"])
        now = [query(pipeline.dsn, one) for one in queries]
        assert now[2] == undisturbed[2]
        for is_now, was in zip(now[:2], undisturbed[:2], strict=True):
            # Only the numbers of the batches are others.
            assert [row[:-1] for row in is_now] == [row[:-1] for row in was]
        pipeline.assert_verified()


@pytest.fixture
def relayed(
    home_dsn: str, kafka_bootstrap: str
) -> tuple[KeyedPipeline, Callable[[], list[Relayed]]]:
    """A pipeline, and a round of the relay, after which its topic is read."""
    ensure_topic(kafka_bootstrap, TP.topic, partitions=1)
    topic = f"out-{uuid.uuid4().hex[:8]}"
    ensure_topic(kafka_bootstrap, topic, partitions=1)

    def relay() -> list[Relayed]:
        assert [] == relay_round(home_dsn, kafka_bootstrap)
        return read_committed(kafka_bootstrap, topic)

    return KeyedPipeline(home_dsn, topic), relay


def test_what_kafka_has_stays_there_and_comes_again_under_its_id(
    relayed: tuple[KeyedPipeline, Callable[[], list[Relayed]]],
) -> None:
    """What was sent of batches that stay is not sent again; what waited, once."""
    pipeline, relay = relayed
    pipeline.publish(1, 2)
    pipeline.take("amid")
    relay()
    pipeline.publish(3, 4)
    assert [1, 2, 3, 4] == _numbers(relay())
    pipeline.publish(5)
    restored = pipeline.restore("amid")
    assert restored.messages_sent == 2
    assert restored.rows["tallyweir.outbox"] == 1
    assert ([], [2]) == (pipeline.waiting(), pipeline.counted())
    pipeline.assert_verified()
    assert [1, 2, 3, 4] == _numbers(relay())
    pipeline.publish(3, 4, 5)
    messages = relay()
    assert [1, 2, 3, 4, 3, 4, 5] == _numbers(messages)
    assert [1, 2, 3, 4, 5] == _numbers(without_repeats(messages))
    by_id = {message.id: message.value for message in messages}
    assert all(by_id[message.id] == message.value for message in messages)
    assert [5] == pipeline.counted()
    pipeline.assert_verified()


def test_a_restore_to_before_all_messages_forgets_that_any_was_sent(
    relayed: tuple[KeyedPipeline, Callable[[], list[Relayed]]],
) -> None:
    """The relay begins anew, under the same IDs."""
    pipeline, relay = relayed
    pipeline.take("empty")
    pipeline.publish(1, 2)
    relay()
    assert pipeline.restore("empty").messages_sent == 2
    assert ([], []) == (pipeline.waiting(), pipeline.counted())
    pipeline.assert_verified()
    pipeline.publish(1)
    pipeline.publish(2)
    messages = relay()
    assert [1, 2, 1, 2] == _numbers(messages)
    assert 2 == len(without_repeats(messages))
    pipeline.assert_verified()


def _numbers(messages: list[Relayed]) -> list[int]:
    return [json.loads(message.value or b"")["number"] for message in messages]


@pytest.mark.parametrize(
    ("moment", "sent_before", "sends", "is_noted", "waiting"),
    [
        pytest.param(_COUNTED, 0, 2, True, [], id="its_first"),
        pytest.param(_COUNTED, 0, 3, True, [], id="its_first_and_one_taken_back"),
        pytest.param(_COUNTED, 1, 1, True, [], id="one_that_stays"),
        pytest.param(_COUNTED, 1, 2, False, [2], id="one_that_is_taken_back"),
        pytest.param(_GONE, 0, 3, False, [1, 2], id="its_first_and_one_that_is_gone"),
        pytest.param(_GONE, 3, 1, False, [], id="the_second_of_two_that_are_gone"),
    ],
)
def test_a_relay_that_sends_during_a_restore_counts_what_stays_and_is_gone(  # noqa: PLR0913 - one case
    pipeline: KeyedPipeline,
    moment: str,
    sent_before: int,
    sends: int,
    waiting: list[int],
    *,
    is_noted: bool,
) -> None:
    """Its chunk is noted ahead of the restore or behind it, or sent again."""
    pipeline.publish(1)
    pipeline.publish(2)
    pipeline.take("amid")
    pipeline.publish(3)
    pipeline.publish(4)
    feed = RelayFeed(pipeline.dsn)
    assert feed.try_lock()
    _send(feed, sent_before)
    moved: list[Future[None]] = []
    with ThreadPoolExecutor(1) as pool:

        def relay() -> None:
            moved.append(pool.submit(_send, feed, sends))
            _await(lambda: moved[0].done() or query(pipeline.dsn, _BLOCKED) == [(1,)])

        home = psycopg.connect(
            pipeline.dsn, cursor_factory=_calling(relay, after=moment)
        )
        pipeline.restore("amid", home=home)
        error = moved[0].exception(_TIMEOUT_S)
    assert (error is None) == is_noted
    if error is not None:
        assert isinstance(error, RetryableError)
        assert error.code == "RELAY_CURSOR_MOVED"
    feed.close()
    assert waiting == pipeline.waiting()
    assert [2 - len(waiting)][: len(waiting) < 2] == pipeline.counted()
    pipeline.assert_verified()


def _send(feed: RelayFeed, messages: int) -> None:
    """Note so many messages as sent."""
    if not messages:
        return
    after = feed.read_cursor(PIPELINE, OUTBOX)
    chunk = feed.read_outbox(PIPELINE, after, messages_max=messages, bytes_max=10**6)
    feed.move_cursor(
        PIPELINE, OUTBOX, after=after, to=chunk[-1].place, messages=len(chunk)
    )


def _calling(
    callback: Callable[[], None], *, after: str
) -> type[psycopg.Cursor[TupleRow]]:
    """Make cursors that call back once, behind the statement that has a text."""
    is_due = True

    class Calling(psycopg.Cursor[TupleRow]):
        def execute(self, query: Any, *rest: Any, **more: Any) -> Any:  # noqa: ANN401
            nonlocal is_due
            result = super().execute(query, *rest, **more)
            text = query.as_string(None) if hasattr(query, "as_string") else str(query)
            if is_due and after in text:
                is_due = False
                callback()
            return result

    return Calling


def _await(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)
