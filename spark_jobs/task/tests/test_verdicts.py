"""What becomes of single events, on tables as Spark hands them to a task."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tallyweir.schemas.codec import EventRecord, decode, encode
from tallyweir.schemas.contract import Contract, load_contract
from tallyweir.schemas.event_contracts import EventContract, EventContracts
from tallyweir.schemas.pipeline.checks.durations import in_microseconds
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.window_columns import (
    UTC_ZONE,
    AlignedWindows,
    LatePolicy,
    fixed_windows,
)
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.instants import to_datetime
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.durations import DURATION_MAX
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.protocol.ports import RejectedBucket, RoomlessRow
from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer, RowClass
from tallyweir.sinks.seen_ids.id_hash import fingerprint_of
from tallyweir.sinks.seen_ids.tombstones import Tombstones
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass
from tallyweir.spark_jobs.task.verdicts import (
    EARLIEST_EVENT_TIME_US,
    VERDICTS,
    Case,
    IdRules,
    KnownIds,
    Rules,
)
from tallyweir.spark_jobs.task.window_assignment import assign_windows

_KEY = b"0123456789abcdef"
_NOON_US = 1_700_000_000_000_000
_SCHEMA = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "unit", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": "int"},
    ],
}


@pytest.fixture
def contract(tmp_path: Path) -> Contract:
    """A contract as a pipeline would load it."""
    path = tmp_path / "reading.v1.avsc"
    path.write_text(json.dumps(_SCHEMA))
    return load_contract(str(path))


def _only(contract: Contract) -> EventContract:
    return EventContract(contract=contract, writers={contract.schema_id: contract})


def _rules(contract: Contract, **changes: object) -> Rules:
    values: dict[str, object] = {
        "contracts": EventContracts((_only(contract),)),
        "latest_event_time_us": _NOON_US,
        "rejected": {},
        "rule_conditions": {"TOO_MUCH": "amount < 10"},
        **changes,
    }
    return Rules(**values)  # type: ignore[arg-type]


def _event(contract: Contract, **fields: object) -> dict[str, object]:
    """One row of the event frame, in which nothing is wrong but what is given."""
    record: EventRecord = {"name": "a", "unit": None, "amount": 1}
    record |= {name: fields[name] for name in record if name in fields}
    return {
        named.PLACE: 0,
        named.OFFSET: 0,
        named.KEY: None,
        named.VALUE: encode(contract, record),
        named.TIMESTAMP: None,
        named.EVENT_ID: "id",
        named.EVENT_TIME: _NOON_US,
        named.BROKEN_RULE: None,
        named.FAILED: None,
        named.MODEL_ERROR: None,
        **record,
        **fields,
    }


_COLUMNS = pa.schema(
    [
        (named.PLACE, pa.int64()),
        (named.OFFSET, pa.int64()),
        (named.KEY, pa.binary()),
        (named.VALUE, pa.binary()),
        (named.TIMESTAMP, pa.timestamp("us", "UTC")),
        (named.EVENT_ID, pa.string()),
        (named.EVENT_TIME, pa.timestamp("us", "UTC")),
        (named.BROKEN_RULE, pa.string()),
        (named.FAILED, pa.string()),
        (named.MODEL_ERROR, pa.string()),
        ("name", pa.string()),
        ("unit", pa.string()),
        ("amount", pa.int32()),
    ]
)


def _table(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=_COLUMNS).combine_chunks()


def _decide(
    table: pa.Table,
    rules: Rules,
    *,
    steps: int = len(VERDICTS),
    tombstones: Tombstones | None = None,
    answer: dict[str, RowClass] | None = None,
) -> Case:
    """Try the verdicts of some steps; IDs are new but for those in the answer."""
    payloads = table.column(named.VALUE).chunk(0)
    decoded = rules.contracts.decoder(()).decode(payloads)
    ids = table.column(named.EVENT_ID).to_pylist()

    def ask(key: bytes, asked: Candidates) -> ClaimAnswer:
        assert key == _KEY
        told = [(answer or {}).get(ids[n], RowClass.SURVIVOR) for n in asked.offset]
        return ClaimAnswer(classes=np.array(told, np.uint8), buckets=asked.bucket)

    case = Case(
        events=ClassifiedEvents.undecided(table),
        is_event=decoded.is_event,
        rules=rules,
        known=KnownIds(
            tombstones=tombstones or Tombstones(b"", []),
            places=SourcePlaces(("t",)),
            read_key=lambda: _KEY,
            ask=ask,
        ),
    )
    for step in list(VERDICTS)[:steps]:
        case.decide(step)
    return case


def _find_dead(table: pa.Table, rules: Rules) -> ClassifiedEvents:
    """Judge rows as a task does, which has decoded their payloads."""
    return _decide(table, rules, steps=1).events


def _with_filter(table: pa.Table, *filtered: int) -> pa.Table:
    """Let the pipeline's first condition leave out some rows."""
    numbers = [0 if row in filtered else None for row in range(table.num_rows)]
    return table.append_column(named.FILTERED_BY, pa.array(numbers, pa.int32()))


def _fates(case: Case) -> list[str]:
    return [EventClass(one).name for one in case.events.classes]


def _reasons(rules: Rules, *rows: dict[str, object]) -> dict[int, str]:
    events = _find_dead(_table(*rows), rules)
    dead = events.is_class(EventClass.DEAD)
    assert dead.nonzero()[0].tolist() == sorted(events.reasons)
    return {row: reason for row, (reason, _) in sorted(events.reasons.items())}


def _window(size_us: int) -> WindowTable:
    return WindowTable(
        table="by_unit",
        staging_table="output_0",
        windows=fixed_windows(size_us),
        by=(Column(name="unit", postgres_type="text"),),
        aggregates=(),
        allowed_lateness_us=0,
        late=LatePolicy.DROP,
    )


def test_the_page_has_the_verdicts_in_their_order() -> None:
    """Where people read what becomes of an event."""
    page = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text("utf-8")
    section = page.split("\n## What becomes of an event\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([a-z]+) \| (?:`(\w+)`)?[^|]*\|", section, re.MULTILINE)
    assert rows == [
        (verdict.fate.name.lower(), verdict.reason or "")
        for verdicts in VERDICTS.values()
        for verdict in verdicts
    ]


def test_dead_events_and_those_without_an_id_are_erased_alike(
    contract: Contract,
) -> None:
    """Of an erased event nothing is kept, whatever else was to become of it."""
    changes: list[dict[str, object]] = [
        {named.EVENT_ID: "a"},
        {named.EVENT_ID: "b", named.BROKEN_RULE: "TOO_MUCH"},
        {named.EVENT_ID: None},
        {named.EVENT_ID: "b", named.VALUE: b"x"},
        {named.EVENT_ID: None},
    ]
    rows = [
        _event(contract, **{named.OFFSET: offset, **changed})
        for offset, changed in enumerate(changes)
    ]
    tombstones = Tombstones(fingerprint_of(["b"], _KEY), [("t", 0, 2)])
    case = _decide(_table(*rows), _rules(contract), steps=1, tombstones=tombstones)
    assert ["COMMITTED", *["FILTERED"] * 3, "DEAD"] == _fates(case)
    assert [1, 2, 3] == case.events.erased.tolist()
    assert [4] == list(case.events.reasons)


def test_what_an_envelope_skips_needs_no_id_and_no_time(contract: Contract) -> None:
    """It is no event, and so no dead letter either."""
    nothing: dict[str, object] = {
        named.VALUE: None,
        named.EVENT_ID: None,
        named.EVENT_TIME: None,
    }
    table = _table(_event(contract, **nothing), _event(contract, **nothing))
    table = table.append_column(named.SKIPPED, pa.array(["tombstone", None]))
    case = _decide(table.combine_chunks(), _rules(contract), steps=2)
    assert ["FILTERED", "DEAD"] == _fates(case)


def test_a_dead_event_is_not_filtered(contract: Contract) -> None:
    """Whatever the condition says of it."""
    broken = _event(contract, **{named.BROKEN_RULE: "TOO_MUCH"})
    table = _with_filter(_table(broken, _event(contract)), 0, 1)
    assert ["DEAD", "FILTERED"] == _fates(_decide(table, _rules(contract), steps=1))


@pytest.mark.parametrize("upserts", [False, True])
def test_only_events_that_are_left_ask_for_their_ids(
    contract: Contract, *, upserts: bool
) -> None:
    """In a run that upserts filtered ones ask too, since they may correct."""
    answer = {
        "repeat": RowClass.DUPLICATE,
        "other": RowClass.CONFLICT,
        "filtered repeat": RowClass.DUPLICATE,
        "filtered other": RowClass.CONFLICT,
    }
    changed: dict[str, dict[str, object]] = {
        "new": {},
        **{name: {} for name in answer},
        "old": {named.EVENT_TIME: _NOON_US - 1},
        "filtered old": {named.EVENT_TIME: _NOON_US - 1},
        "dead": {named.BROKEN_RULE: "TOO_MUCH"},
    }
    rows = [
        _event(contract, **{named.EVENT_ID: name, named.OFFSET: offset, **changes})
        for offset, (name, changes) in enumerate(changed.items())
    ]
    rules = IdRules(bucket_seconds=1, expired_before_us=_NOON_US, upserts=upserts)
    table = _with_filter(_table(*rows), 3, 4, 6)
    case = _decide(table, _rules(contract, ids=rules), steps=2, answer=answer)
    assert [
        *("COMMITTED", "DUPLICATE", "DEAD", "FILTERED"),
        "DEAD" if upserts else "FILTERED",
        *("EXPIRED", "FILTERED", "DEAD"),
    ] == _fates(case)
    assert "ID_CONFLICT" == case.events.reasons[2][0]
    assert case.claimed is not None
    asked = sorted(case.claimed.rows.tolist())
    assert asked == ([0, 1, 2, 3, 4] if upserts else [0, 1, 2])
    assert [1] == [len(run) for run in case.new_ids()]


def test_an_event_is_late_if_all_that_want_it_are_too_late(contract: Contract) -> None:
    """One output that takes it, of whatever kind, is enough to commit it."""
    second = 1_000_000
    append = AppendTable(
        table="t", staging_table="output_2", event_columns=(), branches=(HOME,)
    )
    rules = _rules(
        contract,
        outputs=(_window(second), _window(100 * second), append),
        watermark_us=_NOON_US + second,
    )
    table = _table(*[_event(contract)] * 4)
    for number, takers in enumerate(({0, 1, 2}, {1}, {2, 3})):
        wanted = pa.array([row in takers for row in range(4)])
        table = table.append_column(named.wanted_column(number), wanted)
    expected = ["LATE", "COMMITTED", "COMMITTED", "COMMITTED"]
    assert expected == _fates(_decide(table, rules))


def test_an_event_behind_the_pipelines_bound_is_dead(contract: Contract) -> None:
    """At the very bound it is not; what has no time is dead for another reason."""
    rules = _rules(contract, earliest_event_time_us=_NOON_US - 5)
    rows = [
        _event(contract, **{named.EVENT_TIME: time})
        for time in (_NOON_US - 5, _NOON_US - 6, None)
    ]
    assert {1: "TIMESTAMP_TOO_OLD", 2: "MISSING_EVENT_TIME"} == _reasons(rules, *rows)


def test_events_without_room_for_their_ids_are_dead(contract: Contract) -> None:
    """Those of rejected buckets and those that a ledger lists, unless taken before."""
    second, hour = 1_000_000, 3600
    bucket = _NOON_US // second // hour * hour
    rows = [
        _event(
            contract,
            **{named.EVENT_TIME: bucket * second + after, named.OFFSET: offset},
        )
        for offset, after in enumerate((-1, 0, hour * second - 1, hour * second, 5))
    ]
    bucket_known = RejectedBucket(bucket=bucket, detail="no room")
    rows_known = [
        RoomlessRow(
            topic_partition=TopicPartition("t", 0), offset=one, detail="no room"
        )
        for one in (1, 2, 4)
    ]
    for known in ([bucket_known], rows_known):
        rules = _rules(
            contract,
            latest_event_time_us=2 * _NOON_US,
            ids=IdRules(bucket_seconds=hour),
        ).rejecting(known, SourcePlaces(("t",)))
        events = _decide(_with_filter(_table(*rows), 4), rules).events
        assert dict.fromkeys((1, 2), ("NO_BUCKET_LEFT", "no room")) == events.reasons
        assert EventClass.FILTERED == events.classes[4]


def test_a_good_event_stays_alive(contract: Contract) -> None:
    """At the very bound its time is not in the future."""
    event = _event(contract, unit="mm", **{named.EVENT_ID: "x" * 256})
    assert {} == _reasons(_rules(contract), event, _event(contract))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({named.EVENT_ID: None}, "MISSING_ID"),
        ({named.EVENT_ID: ""}, "MISSING_ID"),
        # Bytes count, not characters.
        ({named.EVENT_ID: "é" * 129}, "ID_TOO_LONG"),
        ({named.EVENT_TIME: None}, "MISSING_EVENT_TIME"),
        ({named.EVENT_TIME: _NOON_US + 1}, "TIMESTAMP_IN_FUTURE"),
        ({named.EVENT_TIME: EARLIEST_EVENT_TIME_US - 1}, "TIMESTAMP_TOO_OLD"),
        # Go's zero time, and the smallest moment of .NET.
        (
            {named.EVENT_TIME: dt.datetime.min.replace(tzinfo=dt.UTC)},
            "TIMESTAMP_TOO_OLD",
        ),
        ({named.BROKEN_RULE: "TOO_MUCH"}, "TOO_MUCH"),
        ({named.FAILED: "a + b overflows int."}, "EXPRESSION_FAILED"),
        ({named.MODEL_ERROR: "too much"}, "PREDICTION_FAILED"),
        ({"name": "a\0"}, "UNSTORABLE_VALUE"),
        ({named.EVENT_ID: "a\0"}, "UNSTORABLE_VALUE"),
        ({named.VALUE: None}, "EMPTY_PAYLOAD"),
        ({named.VALUE: b""}, "EMPTY_PAYLOAD"),
        ({named.VALUE: b"\0\0\0\0"}, "MALFORMED"),
        # Several things are wrong: the first question that finds one decides.
        ({named.VALUE: b"x", named.EVENT_ID: None, "name": "\0"}, "BAD_MAGIC"),
        ({named.EVENT_ID: None, named.EVENT_TIME: None}, "MISSING_ID"),
        ({named.EVENT_TIME: None, named.BROKEN_RULE: "TOO_MUCH"}, "MISSING_EVENT_TIME"),
        ({named.EVENT_TIME: None, named.FAILED: "overflows"}, "MISSING_EVENT_TIME"),
        ({named.BROKEN_RULE: "TOO_MUCH", named.FAILED: "overflows"}, "TOO_MUCH"),
        ({named.FAILED: "no", named.MODEL_ERROR: "none"}, "EXPRESSION_FAILED"),
        ({named.FAILED: "overflows", "name": "a\0"}, "EXPRESSION_FAILED"),
    ],
)
def test_a_dead_event_has_its_reason(
    contract: Contract, changes: dict[str, object], reason: str
) -> None:
    """Its neighbours live."""
    good = _event(contract)
    bad = _event(contract, **changes)
    assert {1: reason} == _reasons(_rules(contract), good, bad, good)


def test_bytes_behind_an_event_kill_it(contract: Contract) -> None:
    """Spark ignores them; a task reads a payload to its end."""
    good = _event(contract)
    payload = good[named.VALUE]
    assert isinstance(payload, bytes)
    longer = {**good, named.VALUE: payload + b"\0"}
    assert {1: "TRAILING_BYTES"} == _reasons(_rules(contract), good, longer)


def test_the_id_of_what_is_no_event_is_read_where_it_can_be(contract: Contract) -> None:
    """People ask by it what became of the record."""
    good = _event(contract)
    payload = good[named.VALUE]
    assert isinstance(payload, bytes)
    id_field = contract.fields[0].name
    rules = _rules(contract, id_field=id_field)
    ids = {}
    for broken in (payload + b"\0", payload[:-1], payload[:6], b"\0\0\0\0", b"x"):
        row = {**good, named.VALUE: broken, named.EVENT_ID: None}
        ids[broken] = _find_dead(_table(row), rules).read_ids.get(0)
    read = decode(payload, {contract.schema_id: contract})[id_field]
    assert [read, read, None, None, None] == list(ids.values())
    # One that travels in a header is there anyhow.
    row = {**good, named.VALUE: payload[:-1]}
    assert {} == _find_dead(_table(row), _rules(contract)).read_ids


def test_a_clumsy_encoding_is_no_fault(contract: Contract) -> None:
    """A number in more bytes than it needs is still that number."""
    good = _event(contract)
    payload = good[named.VALUE]
    assert isinstance(payload, bytes)
    clumsy = {**good, named.VALUE: payload[:-1] + b"\x82\x00"}
    assert {} == _reasons(_rules(contract), good, clumsy)


def test_what_spark_could_not_decode_never_becomes_an_event(contract: Contract) -> None:
    """What it has computed with nulls is nothing to go by, whatever we can read."""
    undecoded = pa.array([False, True])
    table = _table(_event(contract), _event(contract))
    events = _find_dead(
        table.append_column(named.UNDECODED, undecoded), _rules(contract)
    )
    assert {
        1: ("MALFORMED", "Spark could not decode the event to compute with it.")
    } == (events.reasons)


def test_a_broken_rule_is_told_with_its_condition(contract: Contract) -> None:
    """The code alone would send people to the pipeline file."""
    broken = _event(contract, **{named.BROKEN_RULE: "TOO_MUCH"})
    events = _find_dead(_table(broken), _rules(contract))
    assert {0: ("TOO_MUCH", "Not true of the event: amount < 10")} == events.reasons


def test_copies_of_a_refused_event_go_with_it(contract: Contract) -> None:
    """Else each staging would bring the next copy forward, to be refused in turn.

    What stands before it was taken by the table, where repeats are not dropped.
    """
    refused = _event(contract, **{named.PLACE: 1, named.OFFSET: 7})
    earlier = _event(contract, **{named.OFFSET: 8})
    copy = _event(contract, **{named.PLACE: 2, named.OFFSET: 3})
    # Another payload or ID is another event, and may well be storable.
    later = {named.PLACE: 2, named.OFFSET: 4}
    altered = _event(contract, amount=2, **later)
    other = _event(contract, **{**later, named.EVENT_ID: "other"})
    rules = _rules(contract, rejected={(1, 7): "Table t refused the row: because."})
    events = _find_dead(_table(copy, altered, other, refused, earlier), rules)
    expected = ("REJECTED_BY_POSTGRES", "Table t refused the row: because.")
    assert {0: expected, 3: expected} == events.reasons


def test_a_refusal_of_another_task_concerns_nobody_here(contract: Contract) -> None:
    """Positions are compared as pairs, not as offsets."""
    rules = _rules(contract, rejected={(1, 0): "no"})
    assert {} == _reasons(rules, _event(contract))


def test_a_key_that_an_output_cannot_keep_kills_the_event(contract: Contract) -> None:
    """Unless something else has killed it before."""
    rules = _rules(contract, outputs=(_window(size_us=1_000_000),))
    long = "x" * 2_001
    assert {0: "KEY_TOO_LONG", 1: "MISSING_ID", 3: "UNSTORABLE_VALUE"} == _reasons(
        rules,
        _event(contract, unit=long),
        _event(contract, unit=long, **{named.EVENT_ID: None}),
        _event(contract, unit="x" * 2_000),
        _event(contract, unit=long + "\0"),
    )


def test_times_before_1970_are_times(contract: Contract) -> None:
    """Negative microseconds are neither missing nor in the future."""
    early = dt.datetime(1600, 2, 29, tzinfo=dt.UTC)
    events = _find_dead(
        _table(_event(contract, **{named.EVENT_TIME: early})), _rules(contract)
    )
    assert {} == events.reasons
    assert int(early.timestamp()) * 1_000_000 == events.event_time_us[0]


def test_the_earliest_time_is_a_time(contract: Contract) -> None:
    """From the year 1000 on; earlier ones are mistakes."""
    assert dt.datetime(1000, 1, 1, tzinfo=dt.UTC) == to_datetime(EARLIEST_EVENT_TIME_US)
    earliest = {named.EVENT_TIME: EARLIEST_EVENT_TIME_US}
    assert {} == _reasons(_rules(contract), _event(contract, **earliest))


@pytest.mark.parametrize("time_zone", [UTC_ZONE, "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("steps", [1, 3])
def test_what_is_counted_back_from_the_earliest_time_is_a_moment(
    time_zone: str, steps: int
) -> None:
    """Windows of a century, a watermark a century late, a horizon before that."""
    century_us = in_microseconds(DURATION_MAX)
    windows = AlignedWindows(
        size_us=century_us, every_us=century_us // steps, time_zone=time_zone
    )
    assigned = assign_windows(np.array([EARLIEST_EVENT_TIME_US]), windows)
    assert assigned.rows.size
    oldest_us = min(assigned.starts.min(), EARLIEST_EVENT_TIME_US - century_us)
    assert to_datetime(int(oldest_us) - 2 * century_us).year >= 1


_VISIT = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "name", "type": ["null", "string"]},
        {"name": "guests", "type": "int"},
    ],
}


class _Several:
    """Readings and visits in one table, and what it says of single rows."""

    def __init__(self, reading: Contract, folder: Path) -> None:
        path = folder / "visit.v1.avsc"
        path.write_text(json.dumps(_VISIT))
        self.reading, self.visit = reading, load_contract(str(path))
        self.rules = _rules(
            reading,
            contracts=EventContracts((_only(self.reading), _only(self.visit))),
        )

    def visited(self, **fields: object) -> dict[str, object]:
        """A row of a visit, in which nothing is wrong but what is given."""
        record = {"name": "a", "guests": 2}
        record |= {name: fields[name] for name in record if name in fields}
        nothing: dict[str, object] = {"unit": None, "amount": None}
        row = _event(self.reading) | nothing
        return {**row, named.VALUE: encode(self.visit, record), **record, **fields}

    def reasons(self, *rows: dict[str, object]) -> dict[int, str]:
        """The dead rows."""
        schema = _COLUMNS.append(pa.field("guests", pa.int32()))
        table = pa.Table.from_pylist(list(rows), schema=schema).combine_chunks()
        events = _find_dead(table, self.rules)
        return {row: detail for row, (_, detail) in sorted(events.reasons.items())}


@pytest.fixture
def several(contract: Contract, tmp_path: Path) -> _Several:
    """A pipeline of two contracts."""
    return _Several(contract, tmp_path)


def test_an_event_needs_the_fields_of_its_own_contract_only(several: _Several) -> None:
    """What the others require is null in its row, and no fault of it."""
    anonymous = several.visited(name=None)
    assert {} == several.reasons(
        _event(several.reading), several.visited(), anonymous, _event(several.reading)
    )


def test_each_contract_judges_its_own_rows(several: _Several) -> None:
    """Bytes behind an event, bytes that lack, and an id that nobody has."""
    longer, cut, strange = several.visited(), several.visited(), several.visited()
    payload = longer[named.VALUE]
    assert isinstance(payload, bytes)
    longer[named.VALUE] = payload + b"\0"
    cut[named.VALUE] = payload[:-1]
    strange[named.VALUE] = payload[:4] + b"\0" + payload[5:]
    reasons = several.reasons(longer, several.visited(), cut, strange)
    unknown = reasons.pop(3)
    assert all(str(one) in unknown for one in several.rules.contracts.writers)
    assert {
        0: f"the event ended at byte {len(payload)} of {len(payload) + 1}",
        2: f"field guests: stream ended at byte {len(payload) - 1} of "
        f"{len(payload) - 1}",
    } == reasons


def test_the_checksum_is_exact_where_64_bits_would_wrap() -> None:
    """Postgres adds up the same offsets as ``numeric``."""
    offsets = [2**63 - 1, 2**63 - 2, 2**33 + 5, 0, 7]
    table = pa.table({named.OFFSET: pa.array(offsets, pa.int64())})
    events = ClassifiedEvents(
        table=table,
        classes=np.zeros(len(offsets), np.uint8),
        event_time_us=np.zeros(len(offsets), np.int64),
    )
    chosen = np.array([True, True, True, False, True])
    assert events.checksum(chosen) == sum(offsets)
    assert events.checksum(np.zeros(len(offsets), np.bool_)) == 0
