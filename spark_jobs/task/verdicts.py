"""Decides the fate of each event of a task; nothing else does.

A task tries ``VERDICTS`` in their order, and the first verdict that takes an event
decides its fate. An event that no verdict takes is committed: at least one output wants
it and can still take it. The table in ``docs/pipelines.md`` is the same list, and a
test keeps the two equal.

A dead event claims no ID, so it counts if it is repaired and sent again. A filtered
event claims no ID either: the filter depends on nothing but the event, so the first
copy that passes counts, in any order of the copies. In a run that upserts, a filtered
event may correct an event with a known ID; then it claims that ID.

Each verdict looks at whole columns first, and at single rows only if a column holds
something wrong.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, singledispatch
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallyweir.schemas.errors import DecodeError, ReasonCode
from tallyweir.schemas.event_contracts import EventContracts
from tallyweir.schemas.payload_report import readable_field
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.protocol.ports import RejectedBucket, RejectedRow, Rejection
from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer, RowClass, new_runs
from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array
from tallyweir.sinks.seen_ids.run import Run
from tallyweir.sinks.seen_ids.tombstones import Tombstones
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass
from tallyweir.spark_jobs.task.event_ids import (
    buckets_of,
    candidates_of,
    find_erased,
    payloads_of,
)
from tallyweir.spark_jobs.task.postgres_values import (
    find_long_keys,
    find_nested_zeros,
    find_unstorable,
    has_length,
    stored_columns,
)
from tallyweir.spark_jobs.task.record_columns import (
    find_bad_keys,
    find_missing_keys,
)
from tallyweir.spark_jobs.task.window_assignment import assign_chosen
from tallyweir.spark_jobs.task.window_partials import find_late

#: The condition that the side table of filtered events gives for erased ones.
ERASED = "erased"

#: Longer IDs are a mistake or an attack; the catalog hashes every byte of them.
EVENT_ID_BYTES_MAX = 256

#: Earlier event times are mistakes, mostly unset times such as Go's zero time,
#: 0001-01-01. A watermark, the start of a window or the oldest known ID lies a few
#: durations before an event, each of them at most a century. So none of these comes
#: before the year 1, where Python's range of times begins.
EARLIEST_EVENT_TIME_US = int(dt.datetime(1000, 1, 1, tzinfo=dt.UTC).timestamp()) * 10**6

#: Reasons why a payload is not an event although its first fields may be readable.
_BEGUN = frozenset(ReasonCode) - {
    ReasonCode.EMPTY_PAYLOAD,
    ReasonCode.BAD_MAGIC,
    ReasonCode.UNKNOWN_SCHEMA,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRules:
    """The rules that a batch's IDs are judged by.

    Attributes:
        bucket_seconds: Seconds of event time in one bucket of seen IDs.
        expired_before_us: The IDs of earlier events are forgotten; None if no ID is.
        upserts: Whether an event may correct an earlier event with the same ID.
        keeps_payload_hashes: Whether an ID that comes again with another payload is a
            conflict.
    """

    bucket_seconds: int
    expired_before_us: int | None = None
    upserts: bool = False
    keeps_payload_hashes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules that a batch's events are judged by; the same for every attempt.

    Attributes:
        contracts: The contracts that the events are read by.
        latest_event_time_us: Events with later times are dead.
        earliest_event_time_us: Events with earlier times are dead; None if the pipeline
            sets no bound.
        rejected: Why Postgres refused the row at (number of its place, offset).
        rule_conditions: The condition behind each reason code of the pipeline.
        outputs: The pipeline's outputs, in its order.
        watermark_us: The watermark that lateness is judged by; None before the first
            event.
        ids: The rules for IDs; None if the pipeline checks no IDs.
        rejected_buckets: Buckets for which the catalog of seen IDs has no room.
        roomless: Why the row at (number of its place, offset) has no such room, for
            rows that the ledger lists.
        id_field: The field that holds the producer's ID; None if a header holds it.
    """

    contracts: EventContracts
    latest_event_time_us: int
    rejected: Mapping[tuple[int, int], str]
    rule_conditions: Mapping[str, str]
    outputs: Sequence[Output] = ()
    watermark_us: int | None = None
    ids: IdRules | None = None
    earliest_event_time_us: int | None = None
    rejected_buckets: tuple[RejectedBucket, ...] = ()
    roomless: Mapping[tuple[int, int], str] = field(default_factory=dict)
    id_field: str | None = None

    def rejecting(self, refused: Iterable[Rejection], places: SourcePlaces) -> Rules:
        """Return the same rules with further rejections."""
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


@dataclass(kw_only=True)
class KnownIds:
    """Access to the IDs of earlier events, for one staging of a task's events.

    Attributes:
        tombstones: The erased IDs and positions.
        places: The topics and partitions behind the frame's place numbers.
        read_key: Reads the installation's secret for fingerprints.
        ask: Claims IDs, given that secret; see ``ClaimHolder.ask``.
    """

    tombstones: Tombstones
    places: SourcePlaces
    read_key: Callable[[], bytes]
    ask: Callable[[bytes, Candidates], ClaimAnswer]

    @cached_property
    def key(self) -> bytes:
        """The secret, read when it is first needed."""
        return self.read_key()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claimed:
    rows: I64Array
    asked: Candidates
    answer: ClaimAnswer


@dataclass(kw_only=True)
class Case:
    """A task's events with all that decides their fate.

    Attributes:
        events: The events; verdicts change their classes.
        is_event: Whether a row's payload is an event of one of the contracts.
        rules: The rules to judge them by.
        known: Access to known IDs; None if no verdict to be tried needs IDs.
        claimed: The rows that have asked for their IDs; None while no row has asked.
    """

    events: ClassifiedEvents
    is_event: BoolArray
    rules: Rules
    known: KnownIds | None = None
    claimed: _Claimed | None = None

    def decide(self, step: str) -> None:
        """Try the verdicts of one step of a task; the steps come in their order."""
        for verdict in VERDICTS[step]:
            verdict.apply(self)

    def undecided(self) -> BoolArray:
        """Tell which events no verdict has taken so far."""
        return self.events.is_class(EventClass.COMMITTED)

    def new_ids(self) -> list[Run]:
        """Return the IDs that the events have claimed."""
        if self.claimed is None:
            return []
        return new_runs(self.claimed.answer, self.claimed.asked)

    @cached_property
    def faults(self) -> dict[int, DecodeError]:
        """Why rows are not events, for rows that were undecided at the first access."""
        values, contracts = self.events.array(named.VALUE), self.rules.contracts
        found = {}
        for row in np.flatnonzero(~self.is_event & self.undecided()).tolist():
            payload = values[row].as_py()
            error = contracts.diagnose(payload)
            assert error is not None, "the two decoders disagree about a payload"
            found[row] = error
            if error.reason_code in _BEGUN and self.rules.id_field is not None:
                self.events.read_ids[row] = _read_id(payload, self.rules)
        return found

    @cached_property
    def id_bytes(self) -> pa.Array:
        """The number of bytes of each ID; null if it is missing or a number."""
        identity = self.events.array(named.EVENT_ID)
        if not has_length(identity.type):
            return pa.nulls(len(identity), pa.int64())
        return pc.binary_length(identity)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A fate, and the function that finds the events that meet it.

    Attributes:
        fate: What the ledger counts the events as.
        reason: What a side table gives as the reason; None if it gives none, or if
            each event brings its own.
        find: Marks the events of a case, decided or not; returns None if it finds none.
    """

    fate: EventClass
    reason: str | None
    find: Callable[[Case], BoolArray | None]

    def apply(self, case: Case) -> None:
        """Give the fate to the events that are found and still undecided."""
        found = self.find(case)
        if found is not None:
            case.events.classes[found & case.undecided()] = self.fate


@dataclass(frozen=True, slots=True)
class DeadVerdict:
    """A reason for events to be dead, and the function that finds them.

    Attributes:
        reason: The dead letters' code; None if ``find`` yields it.
        find: Yields rows of a case, decided or not, each with the detail for people.
        takes_filtered: Whether it takes filtered events as well as undecided ones.
    """

    reason: str | None
    find: Callable[[Case], Iterable[tuple[int, str]]]
    takes_filtered: bool = False
    fate: ClassVar = EventClass.DEAD

    def apply(self, case: Case) -> None:
        """Make dead letters of the events that are found and may be taken."""
        may_take = case.undecided()
        if self.takes_filtered:
            may_take |= case.events.is_class(EventClass.FILTERED)
        for row, found in self.find(case):
            if may_take[row]:
                case.events.mark_dead(row, *self.letter(case, found))

    def letter(self, _: Case, found: str) -> tuple[str, str]:
        """Return the reason and the detail of a dead letter."""
        assert self.reason is not None
        return self.reason, found


@dataclass(frozen=True, slots=True)
class RuleVerdict(DeadVerdict):
    """The rules of the pipeline; ``find`` yields the code of the broken rule."""

    def letter(self, case: Case, found: str) -> tuple[str, str]:
        """Return the rule's code and its condition."""
        return found, f"Not true of the event: {case.rules.rule_conditions[found]}"


def _erased(case: Case) -> BoolArray | None:
    """Find erased events and list them in ``erased``: nothing of them may be kept."""
    known = case.known
    if known is None or not known.tombstones:
        return None
    found = find_erased(case.events, known.tombstones, known.key, known.places)
    case.events.erased = np.flatnonzero(found)
    return found


def _told_by(column: str, case: Case) -> Iterator[tuple[int, str]]:
    """Yield the rows for which a column says why they are dead, with its text."""
    if column not in case.events.table.column_names:
        return
    details = case.events.array(column)
    if details.null_count < len(details):
        for row in np.flatnonzero(np.asarray(details.is_valid())).tolist():
            yield row, details[row].as_py()


def _is_no_event(code: ReasonCode, case: Case) -> Iterator[tuple[int, str]]:
    for row, error in case.faults.items():
        if error.reason_code is code:
            yield row, error.detail


def _undecoded_by_spark(case: Case) -> Iterator[tuple[int, str]]:
    if named.UNDECODED in case.events.table.column_names:
        undecoded = np.asarray(case.events.array(named.UNDECODED))
        yield from _each(
            undecoded, "Spark could not decode the event to compute with it."
        )


def _without_id(case: Case) -> Iterator[tuple[int, str]]:
    identity = case.events.array(named.EVENT_ID)
    if identity.null_count:
        missing = np.asarray(identity.is_null())
        yield from _each(missing, "The event has no producer's ID.")
    if pc.min(case.id_bytes).as_py() == 0:
        empty = pc.equal(case.id_bytes, 0).fill_null(False)  # noqa: FBT003
        yield from _each(np.asarray(empty), "The producer's ID is empty.")


def _with_long_id(case: Case) -> Iterator[tuple[int, str]]:
    if (pc.max(case.id_bytes).as_py() or 0) <= EVENT_ID_BYTES_MAX:
        return
    too_long = pc.greater(case.id_bytes, EVENT_ID_BYTES_MAX).fill_null(False)  # noqa: FBT003
    for row in np.flatnonzero(np.asarray(too_long)).tolist():
        length = case.id_bytes[row].as_py()
        allowed = f"{EVENT_ID_BYTES_MAX} are allowed"
        yield row, f"The producer's ID has {length} bytes; {allowed}."


def _without_time(case: Case) -> Iterator[tuple[int, str]]:
    times = case.events.array(named.EVENT_TIME)
    if times.null_count:
        yield from _each(np.asarray(times.is_null()), "The event has no time.")


def _in_future(case: Case) -> Iterator[tuple[int, str]]:
    # One such event would close every window and forget every ID.
    yield from _each(
        case.events.event_time_us > case.rules.latest_event_time_us,
        "The event time lies further ahead of the clock than the pipeline allows.",
    )


def _too_old(case: Case) -> Iterator[tuple[int, str]]:
    yield from _each(
        case.events.event_time_us < EARLIEST_EVENT_TIME_US,
        "The event time lies before the year 1000; mostly nobody has set it.",
    )
    if case.rules.earliest_event_time_us is not None:
        yield from _each(
            case.events.event_time_us < case.rules.earliest_event_time_us,
            "The event time lies further behind the clock than the pipeline allows.",
        )


def _unstorable(case: Case) -> Iterator[tuple[int, str]]:
    table = case.events.table
    yield from find_unstorable(stored_columns(table)).items()
    yield from find_nested_zeros(table, case.undecided(), case.rules.outputs)


def _with_long_key(case: Case) -> Iterator[tuple[int, str]]:
    yield from find_long_keys(case.events.table, case.undecided(), case.rules.outputs)


def _rejected(case: Case) -> Iterator[tuple[int, str]]:
    """Find the events that Postgres refused when the batch was staged before.

    Postgres would refuse later copies of such an event, with the same ID and payload,
    one after the other, so they are found with it. Earlier copies exist only without
    deduplication, and then the table accepted them.
    """
    events, rules = case.events, case.rules
    if not rules.rejected:
        return
    values = payloads_of(events)
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
            yield row, rules.rejected.get(positions[row], rules.rejected[first])


def _skipped(case: Case) -> BoolArray | None:
    """Find the records that the envelope knows for no events."""
    if named.SKIPPED not in case.events.table.column_names:
        return None
    return np.asarray(case.events.array(named.SKIPPED).is_valid())


def _filtered(case: Case) -> BoolArray | None:
    """Find the events that the filter is not true of, or that no output wants."""
    if named.FILTERED_BY not in case.events.table.column_names:
        return None
    return np.asarray(case.events.array(named.FILTERED_BY).is_valid())


def _expired(case: Case) -> BoolArray | None:
    """Find the events older than all kept IDs: their repeats cannot be known."""
    if case.rules.ids is None or case.rules.ids.expired_before_us is None:
        return None
    expired: BoolArray = case.events.event_time_us < case.rules.ids.expired_before_us
    return expired


def _roomless(case: Case) -> Iterator[tuple[int, str]]:
    """Find the events for whose IDs the catalog has no bucket left."""
    rules = case.rules
    if rules.ids is not None and rules.rejected_buckets:
        details = {one.bucket: one.detail for one in rules.rejected_buckets}
        filed = buckets_of(case.events.event_time_us, rules.ids.bucket_seconds)
        for row in np.flatnonzero(np.isin(filed, list(details))).tolist():
            yield row, details[int(filed[row])]
    if rules.roomless:
        for row, position in enumerate(_positions(case.events)):
            if position in rules.roomless:
                yield row, rules.roomless[position]


def _repeated(case: Case) -> BoolArray | None:
    """Ask for the IDs of the remaining events; find the repeated ones.

    The IDs are compared with the batches committed before this one, so a batch that is
    staged again does not find its own IDs. In a run that upserts, the first event with
    a known ID also survives if its payload differs.
    """
    rules = case.rules.ids
    if rules is None:
        return None
    asks = case.undecided()
    if rules.upserts:
        corrects = case.events.is_class(EventClass.FILTERED) & ~case.events.is_erased()
        if (skipped := _skipped(case)) is not None:
            corrects &= ~skipped
        if (expired := _expired(case)) is not None:
            corrects &= ~expired
        asks |= corrects
    rows = np.flatnonzero(asks)
    if not rows.size:
        return None
    known = case.known
    assert known is not None, "somebody must answer for IDs"
    asked = candidates_of(
        case.events,
        rows,
        known.key,
        bucket_seconds=rules.bucket_seconds,
        keeps_payload_hashes=rules.keeps_payload_hashes,
    )
    order = asked.order()
    rows, asked = rows[order], asked.take(order)
    answer = known.ask(known.key, asked)
    case.claimed = _Claimed(rows=rows, asked=asked, answer=answer)
    case.events.corrections = rows[answer.classes == RowClass.CORRECTION]
    repeated = np.zeros(len(asks), dtype=np.bool_)
    repeated[rows[answer.classes == RowClass.DUPLICATE]] = True
    return repeated


def _conflicting(case: Case) -> Iterator[tuple[int, str]]:
    claimed = case.claimed
    if claimed is not None:
        for row in claimed.rows[claimed.answer.classes == RowClass.CONFLICT].tolist():
            yield row, "The producer's ID was seen before with another payload."


def _late(case: Case) -> BoolArray | None:
    """Find the events that come too late for every output that wants them."""
    events = case.events
    late = case.undecided()
    for number, output in enumerate(case.rules.outputs):
        if not late.any():
            return None
        wanted = late & events.is_wanted_by(number)
        late &= ~in_time(output, case, wanted)
    return late


@singledispatch
def in_time(output: Output, case: Case, wanted: BoolArray) -> BoolArray:
    """Tell which of the events that an output wants it can still take.

    A kind of output that some events may come too late for registers its own function.
    """
    del output, case
    return wanted


@in_time.register
def _(output: WindowTable, case: Case, wanted: BoolArray) -> BoolArray:
    assigned = assign_chosen(case.events.event_time_us, wanted, output.windows)
    is_open = ~find_late(assigned.ends, output, case.rules.watermark_us)
    taken = np.zeros_like(wanted)
    taken[assigned.rows[is_open]] = True
    return taken


#: All verdicts in their order, by the step of a task that tries them.
VERDICTS: Mapping[str, tuple[Verdict | DeadVerdict, ...]] = {
    "validate": (
        Verdict(EventClass.FILTERED, ERASED, _erased),
        Verdict(EventClass.FILTERED, None, _skipped),
        DeadVerdict("ROW_MISFIT", partial(_told_by, named.MISFIT)),
        *(DeadVerdict(code.value, partial(_is_no_event, code)) for code in ReasonCode),
        DeadVerdict("MALFORMED", _undecoded_by_spark),
        DeadVerdict("MISSING_KEY", find_missing_keys),
        DeadVerdict("MALFORMED_KEY", find_bad_keys),
        DeadVerdict("HEADER_NOT_TEXT", partial(_told_by, named.BAD_HEADER)),
        DeadVerdict("MISSING_ID", _without_id),
        DeadVerdict("ID_TOO_LONG", _with_long_id),
        DeadVerdict("MISSING_EVENT_TIME", _without_time),
        DeadVerdict("TIMESTAMP_IN_FUTURE", _in_future),
        DeadVerdict("TIMESTAMP_TOO_OLD", _too_old),
        DeadVerdict("EXPRESSION_FAILED", partial(_told_by, named.UNCOMPUTED)),
        RuleVerdict(None, partial(_told_by, named.BROKEN_RULE)),
        DeadVerdict("EXPRESSION_FAILED", partial(_told_by, named.FAILED)),
        DeadVerdict("PREDICTION_FAILED", partial(_told_by, named.MODEL_ERROR)),
        DeadVerdict("UNSTORABLE_VALUE", _unstorable),
        DeadVerdict("KEY_TOO_LONG", _with_long_key),
        DeadVerdict("REJECTED_BY_POSTGRES", _rejected),
        Verdict(EventClass.FILTERED, None, _filtered),
    ),
    "deduplicate": (
        Verdict(EventClass.EXPIRED, None, _expired),
        DeadVerdict("NO_BUCKET_LEFT", _roomless),
        Verdict(EventClass.DUPLICATE, None, _repeated),
        DeadVerdict("ID_CONFLICT", _conflicting, takes_filtered=True),
    ),
    "windows": (Verdict(EventClass.LATE, None, _late),),
}


def _each(chosen: BoolArray, detail: str) -> Iterator[tuple[int, str]]:
    """Yield the chosen rows, each with the same detail."""
    for row in np.flatnonzero(chosen).tolist():
        yield row, detail


def _read_id(payload: bytes, rules: Rules) -> object | None:
    assert rules.id_field is not None
    return readable_field(payload, rules.contracts.writers, rules.id_field)


def _positions(events: ClassifiedEvents) -> list[tuple[int, int]]:
    """Return each row's number of its place, and its offset."""
    places = events.array(named.PLACE).to_pylist()
    offsets = events.array(named.OFFSET).to_pylist()
    return list(zip(places, offsets, strict=True))
