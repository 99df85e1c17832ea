"""All that is noted of a topic, one record at a time, in bounded memory."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tallyweir.schemas.contract import Contract
from tallyweir.schemas.formats.json.json_canonical import canonical_text
from tallyweir.schemas.formats.json.json_fields import write_path
from tallyweir.schemas.formats.json.json_text import Number, Value
from tallyweir.schemas.formats.json.json_times import micros_of, read_count
from tallyweir.services.look.document_fields import DocumentFields
from tallyweir.services.look.field_profile import is_time_name, moment_of
from tallyweir.services.look.id_candidates import HEADER, KEY, IdCandidates
from tallyweir.services.look.identity_store import IdentityStore, hash_of
from tallyweir.services.look.looked_record import LookedRecord
from tallyweir.services.look.time_candidates import KAFKA_TIMESTAMP, TimeCandidates
from tallyweir.services.look.value_kinds import (
    SeenValue,
    ValueKind,
    classify,
    is_text,
)

_KEPT_ROWS = 5
_ID_CHARACTERS_MAX = 200
_ID_DEPTH = 3
_TIME_CHARACTERS = (16, 40)
#: Whole numbers above these are moments of the unit; see ``field_profile``.
_UNITS = (("s", 10**9), ("ms", 10**12), ("us", 10**15), ("ns", 10**18))
_UNIT_WIDTH = 10
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
    rows: list[bytes] = field(default_factory=list)
    keys: int = 0
    key_texts: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    ids: IdCandidates = field(init=False)
    times: TimeCandidates = field(init=False)
    kafka_times: TimeCandidates = field(init=False)

    def __post_init__(self) -> None:
        self.ids = IdCandidates(self.store)
        self.times = TimeCandidates(self.now)
        self.kafka_times = TimeCandidates(self.now)

    @property
    def values(self) -> int:
        """The records that are no tombstones."""
        return self.records - self.tombstones

    def add(self, record: LookedRecord) -> None:
        """Note a record; those of a partition come in the order of offsets."""
        self.records += 1
        self._add_timestamp(record)
        if record.key is not None:
            self.keys += 1
            self.key_texts += is_text(record.key)
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
        if seen.kind is ValueKind.JSON:
            assert seen.document is not None, "JSON has a document"
            self._add_document(record, seen.document)
        elif seen.record is not None:
            self._add_event(record, seen)

    def _add_timestamp(self, record: LookedRecord) -> None:
        at = record.timestamp_ms
        if at is None:
            return
        self.oldest_ms = at if self.oldest_ms is None else min(self.oldest_ms, at)
        self.newest_ms = at if self.newest_ms is None else max(self.newest_ms, at)
        self.kafka_times.add(record.partition, [(KAFKA_TIMESTAMP, at * 1_000, "")])

    def _add_document(self, record: LookedRecord, document: dict[str, Value]) -> None:
        self.fields.add(document)
        self._keep_row(record)
        ids = [*_own_ids(record)]
        times: list[tuple[str, int | None, str]] = []
        for path, value in _scalars(document, ()):
            name = write_path(path)
            if _may_be_id(value):
                ids.append((name, canonical_text(value).encode()))
            time = _time_of(path[-1], value)
            if time is not None:
                times.append((name, *time))
        self.ids.add(ids, hash_of(canonical_text(document).encode()))
        self.times.add(record.partition, times)

    def _add_event(self, record: LookedRecord, seen: SeenValue) -> None:
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
        self.ids.add(ids, hash_of(record.value))
        self.times.add(record.partition, times)

    def _keep_row(self, record: LookedRecord) -> None:
        if len(self.rows) < _KEPT_ROWS:
            assert record.value is not None, "no tombstone"
            self.rows.append(record.value)


def _own_ids(record: LookedRecord) -> Iterator[tuple[str, bytes]]:
    """Yield what the record has beside its value that may be an ID."""
    if record.key is not None:
        yield KEY, record.key
    for name, value in record.headers.items():
        if name and len(value) <= _ID_CHARACTERS_MAX:
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


def _may_be_id(value: str | Number | None) -> bool:
    if isinstance(value, Number):
        return value.token.isdigit()
    return isinstance(value, str) and 0 < len(value) <= _ID_CHARACTERS_MAX


def _time_of(name: str, value: str | Number | None) -> tuple[int | None, str] | None:
    """Return microseconds and unit of a value; None if it says nothing of times."""
    if isinstance(value, Number):
        return _count_of(value.token) if is_time_name(name) else None
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
    for unit, lowest in _UNITS:
        if lowest <= number < lowest * _UNIT_WIDTH:
            return read_count(token, unit, is_truncated=True), unit
    return None, ""
