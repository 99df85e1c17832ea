"""The columns that a task reads of records itself: of payload, key, time and place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallyweir.schemas.event_contracts import EventContracts
from tallyweir.schemas.formats.decoded_columns import DecodedEvents
from tallyweir.schemas.pipeline.checks.names import KAFKA_TOPIC
from tallyweir.schemas.pipeline.events.kafka_columns import KAFKA_KEY
from tallyweir.schemas.pipeline.events.source import KAFKA_TIMESTAMP
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.source_places import SourcePlaces

if TYPE_CHECKING:
    from tallyweir.spark_jobs.task.verdicts import Case

#: Kafka's own mark for a record without a time.
_NO_TIME_US = -1_000
#: What JSON writes with a backslash.
_ESCAPED = r'["\\\x00-\x1f]'


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """What a task reads of records.

    Attributes:
        places: The topics and partitions behind the frame's place numbers.
        fields: The fields of payloads and keys to decode.
        copied: The columns of Kafka to take as they are.
    """

    places: SourcePlaces
    fields: tuple[str, ...]
    copied: tuple[str, ...]

    def add_to(
        self, table: pa.Table, contracts: EventContracts
    ) -> tuple[pa.Table, DecodedEvents]:
        """Add the columns; tell what else the decoder of payloads found.

        Args:
            table: Records in one chunk, as ``EventFrameRecipe.for_tasks`` has them.
            contracts: The contracts of payloads and keys.
        """
        decoder = contracts.decoder(self.fields)
        decoded = decoder.decode(table.column(named.VALUE).chunk(0))
        for name, column in decoded.columns.items():
            table = table.append_column(name, column)
        if decoded.canonical is not None:
            table = table.append_column(named.CANONICAL, decoded.canonical)
        if decoded.skipped:
            what = [decoded.skipped.get(row) for row in range(table.num_rows)]
            skipped = pa.array(what, pa.string())
            table = table.append_column(named.SKIPPED, skipped)
        if contracts.key is not None:
            keys = contracts.key.decoder(self.fields)
            read = keys.decode(table.column(named.KEY).chunk(0))
            for name, column in read.columns.items():
                prefixed = f"{contracts.key.prefix}{name}"
                table = table.append_column(prefixed, column)
            table = table.append_column(named.IS_KEY, pa.array(read.is_event))
        for name in self.copied:
            table = table.append_column(name, self._copied(name, table))
        return table, decoded

    def _copied(self, name: str, table: pa.Table) -> pa.Array:
        if name == KAFKA_KEY:
            return table.column(named.KEY).chunk(0)
        if name == KAFKA_TIMESTAMP:
            times = table.column(named.TIMESTAMP).chunk(0)
            no_time = pa.scalar(_NO_TIME_US, pa.int64()).cast(times.type)
            return pc.if_else(pc.equal(times, no_time), None, times)
        assert name == KAFKA_TOPIC, name
        topics, _ = self.places.split(np.asarray(table.column(named.PLACE)))
        return topics


def find_missing_keys(case: Case) -> Iterator[tuple[int, str]]:
    """Yield records without a key, where a column of it may not be null."""
    key, events = case.rules.contracts.key, case.events
    if key is None or key.may_lack:
        return
    names = ", ".join(one.name for one in key.fields if not one.nullable)
    missing = np.asarray(events.array(named.KEY).is_null())
    for row in np.flatnonzero(missing).tolist():
        yield row, f"The record has no key, which {names} needs."


def find_bad_keys(case: Case) -> Iterator[tuple[int, str]]:
    """Yield undecided records with a key that does not decode, and say why."""
    key, events = case.rules.contracts.key, case.events
    if key is None:
        return
    keys = events.array(named.KEY)
    is_bad = ~np.asarray(events.array(named.IS_KEY)) & np.asarray(keys.is_valid())
    for row in np.flatnonzero(is_bad & case.undecided()).tolist():
        fault = key.find_fault(keys[row].as_py())
        assert fault is not None, "the two decoders disagree about a key"
        yield row, fault


def join_ids(parts: Sequence[pa.Array]) -> pa.Array:
    """Return IDs of several parts: the parts as a JSON array without spaces.

    A text is a JSON string with only the escapes that JSON demands, a whole number is
    itself, and bytes are their hexadecimal digits as a string. So two rows have the
    same text only if they have the same parts. A row without one of them has no ID.

    Args:
        parts: At least two columns, of types that an ID may have.
    """
    *before, last = map(_written, parts)
    opened = [pc.binary_join_element_wise("[", before[0], "")]
    joined = pc.binary_join_element_wise(*opened, *before[1:], last, ",")
    return pc.binary_join_element_wise(joined, "]", "")


def _written(part: pa.Array) -> pa.Array:
    if pa.types.is_integer(part.type) or pa.types.is_decimal(part.type):
        return part.cast(pa.string())
    if pa.types.is_binary(part.type):
        digits = [None if one is None else one.hex() for one in part.to_pylist()]
        part = pa.array(digits, pa.string())
    plain = pc.binary_join_element_wise('"', part, '"', "")
    try:
        escaped = pc.match_substring_regex(part, _ESCAPED)
    except pa.ArrowInvalid:
        return plain
    rows = np.flatnonzero(np.asarray(escaped.fill_null(False)))  # noqa: FBT003
    if not rows.size:
        return plain
    texts = plain.to_pylist()
    for row in rows.tolist():
        texts[row] = json.dumps(part[row].as_py(), ensure_ascii=False)
    return pa.array(texts, pa.string())
