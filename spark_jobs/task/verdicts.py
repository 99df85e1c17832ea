"""Decides the fate of each event of a task; nothing else does.

``VERDICTS`` are tried in their order, and an event leaves at the first that takes it.
What none takes is committed: at least one output wants it and is in time for it. The
table in ``docs/pipelines.md`` is the same list, and a test holds the two equal.

A dead event claims no ID: sent again and repaired, it counts. Neither does a filtered
one: whether it is filtered depends on nothing but itself, so the first copy that is not
filtered counts, in whatever order the copies come. In a run that upserts a filtered
event may correct an event of a known ID, and claims that ID then.

Each verdict looks at whole columns first, and at single rows only where a column has
something wrong in it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.codec import diagnose
from schemas.errors import DecodeError, ReasonCode
from schemas.event_contracts import EventContracts
from schemas.payload_report import readable_field
from schemas.wire_format import HEADER_BYTES, split
from sinks.postgres.outputs.output import Output
from sinks.postgres.outputs.window_table import WindowTable
from sinks.protocol.ports import RejectedBucket, RejectedRow, Rejection
from sinks.seen_ids.claim import Candidates, Claim, RowClass, new_runs
from sinks.seen_ids.run import Run
from sinks.seen_ids.tombstones import Tombstones
from spark_jobs.source import event_columns as named
from spark_jobs.source.source_places import SourcePlaces
from spark_jobs.task.classified_events import (
    BoolArray,
    ClassifiedEvents,
    EventClass,
    I64Array,
)
from spark_jobs.task.event_ids import buckets_of, candidates_of, find_erased
from spark_jobs.task.output_bounds import find_long_keys, find_nested_zeros
from spark_jobs.task.postgres_values import find_unstorable
from spark_jobs.task.windows.window_assignment import assign_chosen
from spark_jobs.task.windows.window_partials import find_late

#: What the side table of filtered events has as the condition of erased ones.
ERASED = "erased"

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
class IdRules:
    """What a batch's IDs are judged by.

    Attributes:
        bucket_seconds: How much event time one bucket of seen IDs holds.
        expired_before_us: Of earlier events no ID is remembered; None if of none.
        upserts: Whether an event may correct an earlier one of its ID.
        keeps_payload_hashes: Whether an ID that comes again with another payload is a
            conflict.
    """

    bucket_seconds: int
    expired_before_us: int | None = None
    upserts: bool = False
    keeps_payload_hashes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a batch's events are judged by; the same for every attempt.

    Attributes:
        contracts: What the events are read as.
        latest_event_time_us: Later event times are dead letters.
        earliest_event_time_us: Earlier ones are; None where the pipeline has no bound.
        rejected: Why Postgres refused the row at (number of its place, offset).
        rule_conditions: The condition behind each reason code of the pipeline.
        outputs: The pipeline's, in its order.
        watermark_us: What lateness is judged by; None before the first event.
        ids: What IDs are judged by; None if the pipeline looks at none.
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
    watermark_us: int | None = None
    ids: IdRules | None = None
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


@dataclass(kw_only=True)
class KnownIds:
    """What is known of IDs from before, for one staging of a task's events.

    Attributes:
        tombstones: What was erased.
        places: Where the events come from, by the numbers of the frame.
        read_key: Reads the installation's secret for fingerprints.
        ask: Claims IDs, given that secret; see ``ClaimHolder.ask``.
    """

    tombstones: Tombstones
    places: SourcePlaces
    read_key: Callable[[], bytes]
    ask: Callable[[bytes, Candidates], Claim]

    @cached_property
    def key(self) -> bytes:
        """The secret, read when it is first needed."""
        return self.read_key()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claimed:
    rows: I64Array
    asked: Candidates
    answer: Claim


@dataclass(kw_only=True)
class Case:
    """A task's events with all that decides their fate.

    Attributes:
        events: The events; verdicts change their classes.
        is_event: Whether a row's payload is an event of one of the contracts.
        rules: What to judge them by.
        known: Of their IDs; None where only what needs no IDs is judged.
        claimed: The rows that have asked for their IDs; None before, and if none has.
    """

    events: ClassifiedEvents
    is_event: BoolArray
    rules: Rules
    known: KnownIds | None = None
    claimed: _Claimed | None = None

    def decide(self, step: str) -> None:
        """Try the verdicts of one step of a task, after those of the steps before."""
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
        """Why each row is no event, of those that were undecided when first asked."""
        values, contracts = self.events.array(named.VALUE), self.rules.contracts
        found = {}
        for row in np.flatnonzero(~self.is_event & self.undecided()).tolist():
            payload = values[row].as_py()
            error = diagnose(payload, contracts.writers)
            assert error is not None, "the two decoders disagree about a payload"
            found[row] = error
            if error.reason_code in _BEGUN and self.rules.id_field is not None:
                self.events.read_ids[row] = _read_id(payload, self.rules)
        return found

    @cached_property
    def id_bytes(self) -> pa.Array:
        """How many bytes each ID has; null without an ID, and if it is a number."""
        identity = self.events.array(named.EVENT_ID)
        if not _is_text_or_bytes(identity.type):
            return pa.nulls(len(identity), pa.int64())
        return pc.binary_length(identity)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A fate, and how the events are found that meet it.

    Attributes:
        fate: What the ledger counts them as.
        reason: What a side table says of them; None if nothing, or if they bring it.
        find: Tells which events of a case, decided or not; None if none.
    """

    fate: EventClass
    reason: str | None
    find: Callable[[Case], BoolArray | None]

    def apply(self, case: Case) -> None:
        """Take those that are undecided."""
        found = self.find(case)
        if found is not None:
            case.events.classes[found & case.undecided()] = self.fate


@dataclass(frozen=True, slots=True)
class DeadVerdict:
    """A reason for which events are dead, and how they are found.

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
        """Make dead letters of those that it may take."""
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
    """The rules of the pipeline; ``find`` yields the code of the broken one."""

    def letter(self, case: Case, found: str) -> tuple[str, str]:
        """Return the rule's code and its condition."""
        return found, f"Not true of the event: {case.rules.rule_conditions[found]}"


def _erased(case: Case) -> BoolArray | None:
    """Find what was erased; nothing may be kept of it, so ``erased`` has it too."""
    known = case.known
    if known is None or not known.tombstones:
        return None
    found = find_erased(case.events, known.tombstones, known.key, known.places)
    case.events.erased = np.flatnonzero(found)
    return found


def _told_by(column: str, case: Case) -> Iterator[tuple[int, str]]:
    """Yield the rows of which a column says why they are dead, and what it says."""
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
    yield from find_unstorable(_stored_columns(table)).items()
    yield from find_nested_zeros(table, case.undecided(), case.rules.outputs)


def _with_long_key(case: Case) -> Iterator[tuple[int, str]]:
    yield from find_long_keys(case.events.table, case.undecided(), case.rules.outputs)


def _rejected(case: Case) -> Iterator[tuple[int, str]]:
    """Find what Postgres refused when the batch was staged before.

    Later copies of a refused event, same ID and same payload, would only be refused
    one after the other, so they go with it. Earlier ones can only be there without
    deduplication, and then the table took them.
    """
    events, rules = case.events, case.rules
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
            yield row, rules.rejected.get(positions[row], rules.rejected[first])


def _filtered(case: Case) -> BoolArray | None:
    """Find what the filter is not true of, or no output wants."""
    if named.FILTERED_BY not in case.events.table.column_names:
        return None
    return np.asarray(case.events.array(named.FILTERED_BY).is_valid())


def _expired(case: Case) -> BoolArray | None:
    """Find what is older than the IDs that are kept: nobody knows its repeats."""
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
    """Ask for the IDs of the events that are left; find those that are known.

    The IDs are held against the batches committed before this one, so a batch that is
    staged again finds none of its own. In a run that upserts, the first event of a
    known ID survives as well if it says otherwise.
    """
    rules = case.rules.ids
    if rules is None:
        return None
    asks = case.undecided()
    if rules.upserts:
        corrects = case.events.is_class(EventClass.FILTERED) & ~case.events.is_erased()
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
    """Find the events that every output that wants them is too late for."""
    events = case.events
    late, undecided = case.undecided(), case.undecided()
    for number, output in enumerate(case.rules.outputs):
        if not late.any():
            return None
        wanted = undecided & events.is_wanted_by(number)
        if isinstance(output, WindowTable):
            assigned = assign_chosen(
                events.event_time_us, wanted & late, output.windows
            )
            is_open = ~find_late(assigned.ends, output, case.rules.watermark_us)
            late[assigned.rows[is_open]] = False
        else:
            late &= ~wanted
    return late


#: By the step of a task that tries them.
VERDICTS: Mapping[str, tuple[Verdict | DeadVerdict, ...]] = {
    "validate": (
        Verdict(EventClass.FILTERED, ERASED, _erased),
        DeadVerdict("ROW_MISFIT", partial(_told_by, named.MISFIT)),
        *(DeadVerdict(code.value, partial(_is_no_event, code)) for code in ReasonCode),
        DeadVerdict("MALFORMED", _undecoded_by_spark),
        DeadVerdict("MISSING_ID", _without_id),
        DeadVerdict("ID_TOO_LONG", _with_long_id),
        DeadVerdict("MISSING_EVENT_TIME", _without_time),
        DeadVerdict("TIMESTAMP_IN_FUTURE", _in_future),
        DeadVerdict("TIMESTAMP_TOO_OLD", _too_old),
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
    if len(payload) < HEADER_BYTES:
        return None
    writer = rules.contracts.writers[split(payload)[0]]
    return readable_field(payload, writer, rules.id_field)


def _positions(events: ClassifiedEvents) -> list[tuple[int, int]]:
    """Return the number of its place and the offset of each row."""
    places = events.array(named.PLACE).to_pylist()
    offsets = events.array(named.OFFSET).to_pylist()
    return list(zip(places, offsets, strict=True))


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
