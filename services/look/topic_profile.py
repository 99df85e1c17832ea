"""All that is noted of a topic, in bounded memory.

Each value is noted alone until ``SETTLED_AT`` of them have shown what the topic holds.
From then on, ``ColumnProfile`` notes those that fit together.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tallyweir.schemas.contract import Contract
from tallyweir.schemas.formats.json.json_canonical import (
    canonical_number,
    canonical_text,
)
from tallyweir.schemas.formats.json.json_fields import write_path
from tallyweir.schemas.formats.json.json_text import Number, Value
from tallyweir.schemas.formats.json.json_times import micros_of, read_count
from tallyweir.services.look.column_profile import ColumnProfile
from tallyweir.services.look.debezium_changes import DebeziumChanges
from tallyweir.services.look.disorder import DisorderMeter
from tallyweir.services.look.document_fields import DocumentFields
from tallyweir.services.look.field_profile import is_time_name, moment_of
from tallyweir.services.look.id_candidates import (
    HEADER,
    ID_CHARACTERS_MAX,
    KEY,
    IdCandidates,
)
from tallyweir.services.look.identity_store import IdentityStore
from tallyweir.services.look.looked_record import LookedBatch, LookedRecord
from tallyweir.services.look.time_candidates import (
    KAFKA_TIMESTAMP,
    UNIT_WIDTH,
    UNITS,
    TimeCandidates,
)
from tallyweir.services.look.value_kinds import (
    CHANGES,
    DOCUMENTS,
    SeenValue,
    ValueKind,
    classify,
    is_text,
)

_KEPT_ROWS = 5
_ID_DEPTH = 3
_TIME_CHARACTERS = (16, 40)
_SCHEMA_IDS_MAX = 100


@dataclass(slots=True)
class TopicProfile:
    """What is known of a topic after some records.

    Attributes:
        store: Counts possible IDs.
        contracts: The known Avro contracts by schema id.
        now: The clock, in microseconds since 1970.
        records: All that were noted.
        kinds: How many values there are of each kind.
        faults: Why values of a known kind are no events.
        schema_ids: How many values have each id of a registry.
        fields: The fields of JSON documents.
        changes: The changes of Debezium.
        rows: The first events, for the table.
        key_texts: How many keys are text.
        keys: Records with a key.
    """

    store: IdentityStore
    contracts: Mapping[int, Contract]
    now: int
    records: int = 0
    tombstones: int = 0
    kinds: Counter[ValueKind] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    schema_ids: Counter[int] = field(default_factory=Counter)
    fields: DocumentFields = field(default_factory=DocumentFields)
    changes: DebeziumChanges = field(default_factory=DebeziumChanges)
    rows: list[bytes] = field(default_factory=list)
    keys: int = 0
    key_texts: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    ids: IdCandidates = field(init=False)
    times: TimeCandidates = field(init=False)
    kafka_times: TimeCandidates = field(init=False)
    columns: ColumnProfile = field(init=False)

    def __post_init__(self) -> None:
        self.ids = IdCandidates(self.store)
        self.times = TimeCandidates(self.now)
        self.kafka_times = TimeCandidates(self.now)
        self.columns = ColumnProfile(self)

    @property
    def values(self) -> int:
        """The records that are no tombstones."""
        return self.records - self.tombstones

    def add(self, batch: LookedBatch) -> None:
        """Note records; those of a partition come in the order of offsets."""
        self.records += len(batch)
        self._add_timestamps(batch)
        self._add_keys(batch.keys)
        alone = 0
        while alone < len(batch) and not self.ids.is_settled:
            self._add_value(alone, batch.record(alone))
            alone += 1
        for row in self.columns.add(batch, range(alone, len(batch))):
            self._add_value(row, batch.record(row))
        self.ids.flush()
        self.times.flush()

    def _add_timestamps(self, batch: LookedBatch) -> None:
        known = [row for row, at in enumerate(batch.timestamps_ms) if at is not None]
        if not known:
            return
        rows = np.array(known, np.int64)
        at = np.array([batch.timestamps_ms[row] for row in known], np.int64)
        oldest, newest = int(at.min()), int(at.max())
        is_first = self.oldest_ms is None or self.newest_ms is None
        self.oldest_ms = oldest if is_first else min(self.oldest_ms or 0, oldest)
        self.newest_ms = newest if is_first else max(self.newest_ms or 0, newest)
        meters = self.kafka_times.meters
        meters.setdefault(KAFKA_TIMESTAMP, (DisorderMeter(now=self.now), ""))
        partitions = np.array(batch.partitions, np.int64)[rows]
        times = {KAFKA_TIMESTAMP: (rows, partitions, at * 1_000)}
        self.kafka_times.add_columns(rows.size, times)
        self.kafka_times.flush()

    def _add_keys(self, keys: Sequence[bytes | None]) -> None:
        given = [one for one in keys if one is not None]
        self.keys += len(given)
        joined = b"".join(given)
        if joined.isascii() and joined.decode().isprintable():
            self.key_texts += len(given) - given.count(b"")
        else:
            self.key_texts += sum(map(is_text, given))

    def _add_value(self, row: int, record: LookedRecord) -> None:
        """Note the value of a record, which has that row in its batch."""
        if record.value is None:
            self.tombstones += 1
            return
        seen = classify(record.value, self.contracts)
        self.kinds[seen.kind] += 1
        if seen.fault is not None:
            self.faults[str(seen.fault.reason_code)] += 1
        if seen.schema_id is not None and (
            len(self.schema_ids) < _SCHEMA_IDS_MAX or seen.schema_id in self.schema_ids
        ):
            self.schema_ids[seen.schema_id] += 1
        if seen.kind in DOCUMENTS:
            assert seen.document is not None, "JSON has a document"
            self._add_document(row, record, seen.document)
        elif seen.kind in CHANGES:
            assert seen.document is not None, "changes are documents"
            self.changes.add(seen.document)
            self._keep_row(record)
        elif seen.record is not None:
            self._add_event(row, record, seen)

    def _add_document(
        self, row: int, record: LookedRecord, document: dict[str, Value]
    ) -> None:
        self.fields.add(document)
        self._keep_row(record)
        ids = [*_own_ids(record)]
        times: list[tuple[str, int | None, str]] = []
        for path, value in _scalars(document, ()):
            name = write_path(path)
            text = _id_of(value)
            if text is not None:
                ids.append((name, text))
            time = _time_of(path[-1], value)
            if time is not None:
                times.append((name, *time))
        self.ids.add(row, ids, canonical_text(document).encode())
        self.times.add(row, record.partition, times)

    def _add_event(self, row: int, record: LookedRecord, seen: SeenValue) -> None:
        assert seen.record is not None, "a contract has read it"
        assert record.value is not None, "no tombstone"
        self._keep_row(record)
        ids = [*_own_ids(record)]
        times: list[tuple[str, int | None, str]] = []
        for name, value in seen.record.items():
            match value:
                case bool():
                    continue
                case str() | int():
                    ids.append((name, repr(value).encode()))
                case bytes():
                    ids.append((name, value))
                case dt.datetime() if value.tzinfo is not None:
                    times.append((name, micros_of(value), ""))
        self.ids.add(row, ids, record.value)
        self.times.add(row, record.partition, times)

    def _keep_row(self, record: LookedRecord) -> None:
        if len(self.rows) < _KEPT_ROWS:
            assert record.value is not None, "no tombstone"
            self.rows.append(record.value)


def _own_ids(record: LookedRecord) -> Iterator[tuple[str, bytes]]:
    """Yield what the record has beside its value that may be an ID."""
    if record.key is not None:
        yield KEY, record.key
    for name, value in record.headers.items():
        if name and len(value) <= ID_CHARACTERS_MAX:
            yield HEADER + name, value


def _scalars(
    members: dict[str, Value], outer: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str | Number | None]]:
    for name, value in members.items():
        path = (*outer, name)
        if isinstance(value, dict):
            if len(path) < _ID_DEPTH:
                yield from _scalars(value, path)
        elif value is None or isinstance(value, str | Number):
            yield path, value


def _id_of(value: str | Number | None) -> bytes | None:
    """Return a value's bytes if it may be an ID."""
    if isinstance(value, Number):
        token = canonical_number(value.token)
        return token.encode() if token.isdigit() else None
    if value is None or not 0 < len(value) <= ID_CHARACTERS_MAX:
        return None
    return value.encode()


def _time_of(name: str, value: str | Number | None) -> tuple[int | None, str] | None:
    """Return microseconds and unit of a value; None if it says nothing of times."""
    if isinstance(value, Number):
        token = canonical_number(value.token)
        return _count_of(token) if is_time_name(name) else None
    if value is None:
        return None
    shortest, longest = _TIME_CHARACTERS
    if not shortest <= len(value) <= longest or not value[:4].isdigit():
        return None, ""
    try:
        return moment_of(value, is_truncated=True), ""
    except ValueError:
        return None, ""


def _count_of(token: str) -> tuple[int | None, str]:
    if not token.isdigit():
        return None, ""
    number = int(token)
    for unit, lowest in UNITS.items():
        if lowest <= number < lowest * UNIT_WIDTH:
            return read_count(token, unit, is_truncated=True), unit
    return None, ""
