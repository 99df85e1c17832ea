"""Topic and partition as one number: there and back."""

from __future__ import annotations

import numpy as np

from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.spark_jobs.source.source_places import SourcePlaces

_PLACES = SourcePlaces(("us", "eu", "Asia"))
_ALL = [
    TopicPartition(topic, partition)
    for topic in ("Asia", "eu", "us")
    for partition in (0, 1, 2**31 - 1)
]


def test_each_place_has_a_number_of_its_own_and_back() -> None:
    """However the topics were listed."""
    numbers = [_PLACES.number(place) for place in _ALL]
    assert _ALL == [_PLACES.place(number) for number in numbers]
    topics, partitions = _PLACES.split(np.array(numbers, dtype=np.int64))
    assert _ALL == [
        TopicPartition(topic, partition)
        for topic, partition in zip(
            topics.to_pylist(), partitions.to_pylist(), strict=True
        )
    ]


def test_the_order_of_numbers_is_that_of_topic_and_partition() -> None:
    """The first copy of an ID in a batch is the same wherever the topic is listed."""
    assert sorted(_ALL) == sorted(_ALL, key=_PLACES.number)
    assert SourcePlaces(("eu", "us", "Asia")) == _PLACES
