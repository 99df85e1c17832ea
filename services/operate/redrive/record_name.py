"""Reads the name that people give a record: ``TOPIC/PARTITION/OFFSET``."""

from __future__ import annotations

from tallyweir.sinks.postgres.steering import RecordPosition
from tallyweir.sinks.protocol.errors import ConfigurationError

_DIGITS_MAX = 18


def parse_record(text: str) -> RecordPosition:
    """Read the name of a record.

    Raises:
        ConfigurationError: ``RECORD_MALFORMED``.
    """
    topic, *place = text.rsplit("/", 2)
    if len(place) != 2 or not all(map(_is_number, place)):  # noqa: PLR2004
        raise ConfigurationError(
            "RECORD_MALFORMED",
            saw=f"{text[:300]!r} does not name a record.",
            why="A dead letter is named by the place of its record in Kafka.",
            fix="Write TOPIC/PARTITION/OFFSET, as dead-letters list does.",
        )
    return RecordPosition(topic=topic, partition=int(place[0]), offset=int(place[1]))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
