"""What becomes of each event of a task: decided here, column by column.

The order of the questions matters, and each event leaves at the first that takes it:

0. filtered, if it was erased: whatever else was to become of it;
1. dead: it cannot be decoded, has no ID or time, breaks a rule, lets an expression
   fail, or holds a value that Postgres cannot store or has refused before, or a key
   that is too long for an output that would take it;
2. filtered: the pipeline's filter is not true of it, or no output wants it;
3. expired: older than the seen-ID horizon, so a repeat of it could not be noticed;
4. duplicate, or dead as ``ID_CONFLICT``: its ID was seen before;
5. late: too late for every output that wants it;
6. committed: at least one output takes it.

So a dead event claims no ID: sent again and repaired, it counts. Neither does a
filtered one: whether it is filtered depends on nothing but itself, so the first copy
that is not filtered counts, in whatever order the copies come. In a run that upserts a
filtered one may correct an event of a known ID, and claims that ID then.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.codec import diagnose
from schemas.errors import ReasonCode
from schemas.event_contracts import EventContracts
from schemas.payload_report import readable_field
from schemas.wire_format import HEADER_BYTES, split
from sinks.postgres.outputs.home_layout import Output
from sinks.protocol.ports import RejectedBucket, RejectedRow, Rejection
from spark_jobs.source import event_columns as named
from spark_jobs.source.source_places import SourcePlaces
from spark_jobs.task.classified_events import BoolArray, ClassifiedEvents, EventClass
from spark_jobs.task.event_ids import buckets_of
from spark_jobs.task.output_bounds import find_long_keys, find_nested_zeros
from spark_jobs.task.postgres_values import find_unstorable

#: Longer IDs are a mistake or an attack; the catalog hashes every byte of them.
EVENT_ID_BYTES_MAX = 256

#: Earlier event times are mistakes: mostly moments that nobody has set, such as Go's
#: zero time, 0001-01-01. What is counted back from an event (a watermark, the begin of
#: a window, what has expired) lies a few durations before it, none of them longer than
#: a century, and so never before the year 1, where the range of Python's moments ends.
EARLIEST_EVENT_TIME_US = int(dt.datetime(1000, 1, 1, tzinfo=dt.UTC).timestamp()) * 10**6

#: Why a payload is no event although its first fields may be read.
_BEGUN = frozenset({ReasonCode.MALFORMED, ReasonCode.TRAILING_BYTES})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """By what a batch's events are judged; the same for every attempt.

    Attributes:
        contracts: What the events are read as.
        latest_event_time_us: Later event times are dead letters.
        earliest_event_time_us: Earlier ones are; None where the pipeline has no bound.
        rejected: Why Postgres refused the row at (number of its place, offset).
        rule_conditions: The condition behind each reason code of the pipeline.
        outputs: The pipeline's, which cannot keep every key.
        rejected_buckets: Those that the seen IDs of the batch have no room for.
        roomless: Rows of such buckets at (number of their place, offset), with why,
            where the ledger tells of them.
        id_field: That holds the producer's ID; None where a header does.
    """

    contracts: EventContracts
    latest_event_time_us: int
    rejected: Mapping[tuple[int, int], str]
    rule_conditions: Mapping[str, str]
    outputs: Sequence[Output] = ()
    earliest_event_time_us: int | None = None
    rejected_buckets: tuple[RejectedBucket, ...] = ()
    roomless: Mapping[tuple[int, int], str] = field(default_factory=dict)
    id_field: str | None = None

    def rejecting(self, refused: Iterable[Rejection], places: SourcePlaces) -> Rules:
        """Return the same rules for events of which Postgres has refused more."""
        rejected = dict(self.rejected)
        roomless = dict(self.roomless)
        buckets = list(self.rejected_buckets)
        for one in refused:
            if isinstance(one, RejectedBucket):
                buckets.append(one)
                continue
            rows = rejected if isinstance(one, RejectedRow) else roomless
            rows[places.number(one.topic_partition), one.offset] = one.detail
        return replace(
            self,
            rejected=rejected,
            rejected_buckets=tuple(buckets),
            roomless=roomless,
        )


def judge(table: pa.Table, is_event: BoolArray, rules: Rules) -> ClassifiedEvents:
    """Decide what can be decided of each event by itself; see ``find_dead``."""
    events = find_dead(table, is_event, rules)
    mark_filtered(events)
    return events


def find_dead(table: pa.Table, is_event: BoolArray, rules: Rules) -> ClassifiedEvents:
    """Sort out the events that can never become results.

    Args:
        table: The event frame's columns, one chunk each and at least one row.
        is_event: Whether a row's payload is an event of one of the contracts.
        rules: What to judge them by.
    """
    times = table.column(named.EVENT_TIME).chunk(0)
    events = ClassifiedEvents(
        table=table,
        classes=np.zeros(table.num_rows, dtype=np.uint8),
        event_time_us=np.asarray(times.cast(pa.int64()).fill_null(0)),
    )
    for row, detail in _details(events, named.MISFIT):
        events.mark_dead(row, "ROW_MISFIT", detail)
    _mark_undecodable(events, is_event, rules)
    _mark_without_identity(events)
    _mark_without_time(events, rules)
    _mark_broken_rules(events, rules)
    for row, detail in _details(events, named.FAILED):
        events.mark_dead(row, "EXPRESSION_FAILED", detail)
    for row, detail in _details(events, named.MODEL_ERROR):
        events.mark_dead(row, "PREDICTION_FAILED", detail)
    for row, detail in find_unstorable(_stored_columns(table)).items():
        events.mark_dead(row, "UNSTORABLE_VALUE", detail)
    alive = events.is_class(EventClass.COMMITTED)
    for row, detail in find_nested_zeros(table, alive, rules.outputs):
        events.mark_dead(row, "UNSTORABLE_VALUE", detail)
    for row, detail in find_long_keys(table, alive, rules.outputs):
        events.mark_dead(row, "KEY_TOO_LONG", detail)
    _mark_rejected(events, rules)
    return events


def mark_filtered(events: ClassifiedEvents) -> None:
    """Leave out the events that the pipeline's conditions do not want."""
    if named.FILTERED_BY in events.table.column_names:
        is_filtered = np.asarray(events.array(named.FILTERED_BY).is_valid())
        chosen = is_filtered & events.is_class(EventClass.COMMITTED)
        events.classes[chosen] = EventClass.FILTERED


def mark_roomless(events: ClassifiedEvents, rules: Rules, bucket_seconds: int) -> None:
    """Sort out the events for whose IDs the catalog has no bucket left."""
    if not (rules.rejected_buckets or rules.roomless):
        return
    alive = events.is_class(EventClass.COMMITTED)
    details = {one.bucket: one.detail for one in rules.rejected_buckets}
    filed = buckets_of(events.event_time_us, bucket_seconds)
    for row in np.flatnonzero(np.isin(filed, list(details)) & alive).tolist():
        events.mark_dead(row, "NO_BUCKET_LEFT", details[int(filed[row])])
    if rules.roomless:
        for row, position in enumerate(_positions(events)):
            if position in rules.roomless and alive[row]:
                events.mark_dead(row, "NO_BUCKET_LEFT", rules.roomless[position])


def _mark_undecodable(
    events: ClassifiedEvents, is_event: BoolArray, rules: Rules
) -> None:
    """Say of each row that is no event why it is none."""
    values = events.array(named.VALUE)
    for row in np.flatnonzero(~is_event).tolist():
        error = diagnose(values[row].as_py(), rules.contracts.writers)
        assert error is not None, "the two decoders disagree about a payload"
        events.mark_dead(row, str(error.reason_code), error.detail)
        if error.reason_code in _BEGUN and rules.id_field is not None:
            events.read_ids[row] = _read_id(values[row].as_py(), rules)
    if named.UNDECODED in events.table.column_names:
        undecoded = np.asarray(events.array(named.UNDECODED)) & is_event
        for row in np.flatnonzero(undecoded).tolist():
            events.mark_dead(
                row, "MALFORMED", "Spark could not decode the event to compute with it."
            )


def _read_id(payload: bytes, rules: Rules) -> object | None:
    assert rules.id_field is not None
    if len(payload) < HEADER_BYTES:
        return None
    writer = rules.contracts.writers[split(payload)[0]]
    return readable_field(payload, writer, rules.id_field)


def _mark_without_identity(events: ClassifiedEvents) -> None:
    identity = events.array(named.EVENT_ID)
    if identity.null_count:
        for row in np.flatnonzero(np.asarray(identity.is_null())).tolist():
            events.mark_dead(row, "MISSING_ID", "The event has no producer's ID.")
    if not _is_text_or_bytes(identity.type):
        return
    lengths = pc.binary_length(identity)
    bounds = pc.min_max(lengths).as_py()
    if bounds["min"] is None:
        return
    if bounds["min"] == 0:
        empty = pc.equal(lengths, 0).fill_null(False)  # noqa: FBT003
        for row in np.flatnonzero(np.asarray(empty)).tolist():
            events.mark_dead(row, "MISSING_ID", "The producer's ID is empty.")
    if bounds["max"] > EVENT_ID_BYTES_MAX:
        too_long = pc.greater(lengths, EVENT_ID_BYTES_MAX).fill_null(False)  # noqa: FBT003
        for row in np.flatnonzero(np.asarray(too_long)).tolist():
            events.mark_dead(
                row,
                "ID_TOO_LONG",
                f"The producer's ID has {lengths[row].as_py()} bytes; "
                f"{EVENT_ID_BYTES_MAX} are allowed.",
            )


def _mark_without_time(events: ClassifiedEvents, rules: Rules) -> None:
    times = events.array(named.EVENT_TIME)
    if times.null_count:
        for row in np.flatnonzero(np.asarray(times.is_null())).tolist():
            events.mark_dead(row, "MISSING_EVENT_TIME", "The event has no time.")
    ahead = events.event_time_us > rules.latest_event_time_us
    for row in np.flatnonzero(ahead).tolist():
        # One such event would close every window and forget every ID.
        events.mark_dead(
            row,
            "TIMESTAMP_IN_FUTURE",
            "The event time lies further ahead of the clock than the pipeline allows.",
        )
    # A row without a time has zero here, which is 1970.
    ancient = events.event_time_us < EARLIEST_EVENT_TIME_US
    for row in np.flatnonzero(ancient).tolist():
        events.mark_dead(
            row,
            "TIMESTAMP_TOO_OLD",
            "The event time lies before the year 1000; mostly nobody has set it.",
        )
    if rules.earliest_event_time_us is None:
        return
    behind = events.event_time_us < rules.earliest_event_time_us
    for row in np.flatnonzero(behind).tolist():
        events.mark_dead(
            row,
            "TIMESTAMP_TOO_OLD",
            "The event time lies further behind the clock than the pipeline allows.",
        )


def _mark_broken_rules(events: ClassifiedEvents, rules: Rules) -> None:
    if named.BROKEN_RULE not in events.table.column_names:
        return
    broken = events.array(named.BROKEN_RULE)
    if broken.null_count == len(broken):
        return
    for row in np.flatnonzero(np.asarray(broken.is_valid())).tolist():
        code = broken[row].as_py()
        condition = rules.rule_conditions[code]
        events.mark_dead(row, code, f"Not true of the event: {condition}")


def _details(events: ClassifiedEvents, column: str) -> Iterator[tuple[int, str]]:
    """Yield the rows of which a column says why they are dead, and what it says."""
    if column not in events.table.column_names:
        return
    details = events.array(column)
    if details.null_count == len(details):
        return
    for row in np.flatnonzero(np.asarray(details.is_valid())).tolist():
        yield row, details[row].as_py()


def _positions(events: ClassifiedEvents) -> list[tuple[int, int]]:
    """Return the number of its place and the offset of each row."""
    places = events.array(named.PLACE).to_pylist()
    offsets = events.array(named.OFFSET).to_pylist()
    return list(zip(places, offsets, strict=True))


def _mark_rejected(events: ClassifiedEvents, rules: Rules) -> None:
    """Take out what Postgres refused when the batch was staged before.

    Later copies of a refused event, same ID and same payload, would only be refused
    one after the other, so they go with it. Earlier ones can only be there without
    deduplication, and then the table took them.
    """
    if not rules.rejected:
        return
    values = events.array(named.VALUE)
    positions = _positions(events)
    refused = [
        row for row, position in enumerate(positions) if position in rules.rejected
    ]
    if not refused:
        return
    id_columns = [
        events.array(name)
        for name in (named.ID_SOURCE, named.EVENT_ID)
        if name in events.table.column_names
    ]

    def event_of(row: int) -> tuple[object, ...]:
        return tuple(column[row] for column in (*id_columns, values))

    first_refused = {
        event_of(row): positions[row]
        for row in sorted(refused, key=positions.__getitem__, reverse=True)
    }
    same_payload = pc.is_in(values, value_set=values.take(pa.array(refused)))
    for row in np.flatnonzero(np.asarray(same_payload)).tolist():
        first = first_refused.get(event_of(row))
        if first is not None and first <= positions[row]:
            detail = rules.rejected.get(positions[row], rules.rejected[first])
            events.mark_dead(row, "REJECTED_BY_POSTGRES", detail)


def _stored_columns(table: pa.Table) -> pa.Table:
    """Choose the columns that can reach a table of the user."""
    internal = {
        named.KEY,
        named.VALUE,
        named.ORIGINAL,
        named.MISFIT,
        named.BROKEN_RULE,
        named.FAILED,
        named.MODEL_ERROR,
        named.TIMESTAMP,
        named.EVENT_TIME,
    }
    return table.select([name for name in table.column_names if name not in internal])


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )
