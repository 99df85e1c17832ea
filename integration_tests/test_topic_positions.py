"""Where a topic ends, for who reads it now and for who waits for all of it."""

from __future__ import annotations

import uuid

from integration_tests.harness.readings import Sent
from integration_tests.harness.topic_log import TopicLog as WrittenTopic
from services.topic_log import TopicLog
from sinks.protocol.offsets import TopicPartition


def test_an_open_transaction_is_before_the_high_watermark_and_behind_the_stable_end(
    kafka_bootstrap: str,
) -> None:
    """Who waits until everything is read may not ask for the stable end."""
    topic = WrittenTopic(kafka_bootstrap, f"positions-{uuid.uuid4().hex[:12]}")
    topic.create(1)
    log = TopicLog(kafka_bootstrap, topic.name)
    place = TopicPartition(topic.name, 0)
    topic.send([Sent(value=b"a", fate="?"), Sent(value=b"b", fate="?")])
    with topic.open_transaction([Sent(value=b"c", fate="?")]):
        assert log.read_positions()[place].log_end_offset == 2
        assert log.read_high_watermarks() == {place: 3}
