"""What is told of a topic beside a query, and when: each look is given its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from tallyweir.sinks.kafka_admin import KafkaAdmin
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.recovery import BrokerPosition
from tallyweir.spark_jobs.source.topic_watch import LOOK_S, REPEAT_S, TopicWatch

_AWAY = RetryableError("KAFKA_UNREACHABLE", saw="s", why="w", fix="f")
_MISSING = ConfigurationError("TOPIC_MISSING", saw="s", why="w", fix="f")

_Positions = Mapping[TopicPartition, BrokerPosition]


class _World:
    """A broker that gives prepared answers, and a clock between the looks."""

    def __init__(self, topic_ids: Mapping[str, str]) -> None:
        self.now = 100.0
        self.answer: _Positions | TallyweirError = _held()
        self.noted: list[_Positions] = []
        self.watch = TopicWatch(
            cast(KafkaAdmin, self),
            topic_ids,
            structlog.get_logger(),
            on_positions=self.noted.append,
            clock=lambda: self.now,
        )

    def read_positions(self) -> _Positions:
        if isinstance(self.answer, TallyweirError):
            raise self.answer
        return self.answer

    def look(self, answer: _Positions | TallyweirError) -> list[dict[str, Any]]:
        """Return what one look logs; the next is ``LOOK_S`` later."""
        self.answer = answer
        with capture_logs() as lines:
            self.watch.look()
        self.now += LOOK_S
        return [dict(line) for line in lines]


@pytest.fixture
def world() -> _World:
    """A watch that has seen nothing yet."""
    return _World({"orders": "id-1"})


def _held(*held: tuple[int, int, int], topic_id: str = "id-1") -> _Positions:
    """Return positions of which some are held back from an offset to the log's end."""
    return {
        TopicPartition("orders", partition): BrokerPosition(
            topic_id=topic_id,
            log_start_offset=0,
            log_end_offset=stable,
            held_back=end - stable,
        )
        for partition, stable, end in held or [(0, 7, 7)]
    }


def test_a_healthy_topic_gives_no_line(world: _World) -> None:
    """Who is on call reads every warning."""
    assert [[]] * 20 == [world.look(_held()) for _ in range(20)]
    assert world.watch.failure is None


def test_an_outage_is_told_at_once_and_then_every_half_minute(world: _World) -> None:
    """Once more when it is over, with its length; a second one is a new one."""
    looks = int(REPEAT_S / LOOK_S)
    told = [world.look(_AWAY) for _ in range(looks + 1)]
    assert [1, *[0] * (looks - 1), 1] == [len(lines) for lines in told]
    assert ("kafka unreachable", "warning", "KAFKA_UNREACHABLE", REPEAT_S) == tuple(
        told[-1][0][key] for key in ("event", "log_level", "error_code", "for_s")
    )
    (over,) = world.look(_held())
    assert ("kafka reachable again", REPEAT_S + LOOK_S) == (
        over["event"],
        over["away_s"],
    )
    assert [] == world.look(_held())
    assert 1 == len(world.look(_AWAY))
    assert world.watch.failure is None


def test_a_stable_offset_that_stands_still_before_the_end_is_told(
    world: _World,
) -> None:
    """Only the partition that is held is named, with where it stands."""
    assert [] == world.look(_held((0, 5, 9), (3, 7, 8)))
    (told,) = world.look(_held((0, 9, 12), (3, 7, 30)))
    assert ("transaction holds the log", "orders[3]", 7, 30, LOOK_S) == tuple(
        told[key]
        for key in ("event", "partition", "stable_offset", "end_offset", "for_s")
    )
    assert [] == world.look(_held((3, 7, 30)))


def test_transactions_that_come_and_go_are_not_told(world: _World) -> None:
    """A busy producer always has one open, and each starts further on."""
    states = [_held((0, offset, offset + 3)) for offset in range(0, 100, 4)]
    assert [[]] * len(states) == [world.look(state) for state in states]


def test_a_transaction_that_ended_is_forgotten(world: _World) -> None:
    """The same offset seen open again was not open in between."""
    answers = [_held((0, 5, 9)), _held(), _held((0, 5, 9))]
    assert [[], [], []] == [world.look(answer) for answer in answers]


def test_another_topic_of_the_same_name_is_a_failure(world: _World) -> None:
    """Its offsets need not differ for it."""
    world.look(_held(topic_id="id-2"))
    assert world.watch.failure is not None
    assert "TOPIC_RECREATED" == world.watch.failure.code


def test_each_of_several_topics_is_told_from_another_of_its_name() -> None:
    """One of them is enough to stop."""
    world = _World({"orders": "id-1", "returns": "id-2"})
    other = BrokerPosition(topic_id="id-9", log_start_offset=0, log_end_offset=0)
    world.look({**_held(), TopicPartition("returns", 0): other})
    assert world.watch.failure is not None
    assert "Topic returns has id id-9" in world.watch.failure.saw


def test_a_topic_is_missing_when_it_is_missing_twice(world: _World) -> None:
    """Whoever makes a topic anew deletes it first; that has an error of its own."""
    world.look(_MISSING)
    world.look(_held())
    world.look(_MISSING)
    assert world.watch.failure is None
    world.look(_MISSING)
    assert world.watch.failure is _MISSING


def test_a_watch_that_has_ended_tells_nothing(world: _World) -> None:
    """Its last look may return when another query runs already."""
    with world.watch:
        pass
    assert [] == world.look(_AWAY)


def test_each_answer_about_the_right_topic_is_passed_on(world: _World) -> None:
    """Who shows the lag gets the ends; another topic's ends would be wrong."""
    world.look(_held())
    world.look(_AWAY)
    assert [_held()] == world.noted
    world.look(_held(topic_id="id-2"))
    assert 1 == len(world.noted)
