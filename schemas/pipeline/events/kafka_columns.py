"""The columns that every record brings from Kafka: key, timestamp, topic, headers.

No contract declares them. They exist where a pipeline names them, and never hide a
column of the event: if a contract, a lookup or any other part of the pipeline has a
column of such a name, the name means that one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tallyweir.schemas.contract import ContractField
from tallyweir.schemas.pipeline.checks.names import KAFKA_TOPIC
from tallyweir.schemas.pipeline.events.source import KAFKA_TIMESTAMP
from tallyweir.sinks.protocol.column_names import HEADER_PREFIX

KAFKA_KEY = "kafka_key"
KAFKA_HEADERS = "kafka_headers"

_TYPES = {
    KAFKA_KEY: "bytes",
    KAFKA_TIMESTAMP: "timestamp-micros",
    KAFKA_TOPIC: "string",
    KAFKA_HEADERS: "json",
}
#: Those that every record has; others are named by their headers.
KAFKA_COLUMNS = tuple(_TYPES)
#: Those that are taken as they are from a record's key, time and place.
COPIED_COLUMNS = frozenset(KAFKA_COLUMNS) - {KAFKA_HEADERS}


def kafka_columns(
    named: Iterable[str], others: Collection[str]
) -> tuple[ContractField, ...]:
    """Return the columns of Kafka among some names, each once.

    Args:
        named: Names that a pipeline uses; case counts for headers only.
        others: All other columns of its events, which hide Kafka's.
    """
    hidden = {name.casefold() for name in others}
    found = dict.fromkeys(_canonical(name) for name in named)
    return tuple(
        ContractField(
            name=name, type=_TYPES.get(name, "string"), nullable=name != KAFKA_TOPIC
        )
        for name in found
        if (name in _TYPES or is_header(name)) and name.casefold() not in hidden
    )


def is_header(name: str) -> bool:
    """Tell whether a column holds the value of one header."""
    return name.startswith(HEADER_PREFIX) and name != HEADER_PREFIX


def _canonical(name: str) -> str:
    """Return a name as it is kept; Spark ignores the case of names in expressions."""
    folded = name.casefold()
    if folded in _TYPES:
        return folded
    if folded.startswith(HEADER_PREFIX):
        return HEADER_PREFIX + name[len(HEADER_PREFIX) :].strip()
    return name
