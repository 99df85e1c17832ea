"""Debezium's changes in Avro: every type by its name, and what is no change."""

from __future__ import annotations

import base64
import datetime as dt
import json
import pickle
import uuid
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tallyweir.schemas.contract import DeclaredFields
from tallyweir.schemas.errors import ContractError, DecodeError, EncodeError
from tallyweir.schemas.event_contracts import EventContracts, load_event_contracts
from tallyweir.schemas.formats.avro.tests.made_changes import (
    COLUMNS,
    HEARTBEAT,
    Json,
    change,
    contracts,
    envelope,
    payload,
)
from tallyweir.schemas.payload_report import report_payload
from tallyweir.schemas.schema_tree import NUMBER_BOUNDS

_NOON = dt.datetime(2026, 11, 26, 12, 0, 0, 123456, tzinfo=dt.UTC)
_MICROS = 1_795_694_400_123_456
_ROW: Json = {
    "id": 5,
    "price": b"\xff",
    "wide": (123456789012345678901234567890).to_bytes(13, signed=True),
    "any_number": {"scale": 3, "value": b"\x04\xd2"},
    "placed": _MICROS,
    "placed3": _MICROS // 1_000,
    "placed9": _MICROS * 1_000,
    "at": "2026-11-26T13:00:00.123456+01:00",
    "born": -1,
    "opens": 86_399_999_999,
    "opens3": 1,
    "span": "P1Y0M2DT0H0M3.5S",
    "lasts": 7,
    "key": "7d444840-9dc0-11d1-b245-5ffdce74fad2",
    "more": '{"b": 1.50, "a": null}',
    "mood": "ok",
    "raw": b"\0\1",
    "ratio": 0.1,
    "days": [0, None],
}
#: The same as the columns of a batch have it.
_VALUES: Json = {
    "id": 5,
    "price": Decimal("-0.01"),
    "wide": "12345678901234567890.1234567890",
    "any_number": "1.234",
    "placed": _NOON.replace(tzinfo=None),
    "placed3": _NOON.replace(tzinfo=None, microsecond=123000),
    "placed9": _NOON.replace(tzinfo=None),
    "at": _NOON,
    "born": dt.date(1969, 12, 31),
    "opens": "23:59:59.999999",
    "opens3": "00:00:00.001000",
    "span": "P1Y0M2DT0H0M3.5S",
    "lasts": 7,
    "key": "7d444840-9dc0-11d1-b245-5ffdce74fad2",
    "more": '{"a":null,"b":1.5}',
    "mood": "ok",
    "raw": b"\0\1",
    "ratio": 0.1,
    "days": '["1970-01-01",null]',
}


def _decode(known: EventContracts, *payloads: bytes | None) -> tuple[Any, list[Json]]:
    """Return what a batch holds, by its rows too."""
    names = [one.name for one in known.payload_fields]
    decoder = pickle.loads(pickle.dumps(known.decoder(names)))
    found = decoder.decode(pa.array(payloads, pa.binary()))
    return found, pa.table(found.columns).to_pylist()


def test_each_type_of_debezium_is_the_exact_type_of_its_column(tmp_path: Path) -> None:
    """By `connect.name`, which Avro itself does not know."""
    known = contracts(tmp_path)
    types = {one.name: one.type for one in known.payload_fields}
    assert types["price"] == types["before_price"] == "decimal(10,2)"
    assert types["wide"] == "decimal(50,10)"
    assert types["any_number"] == "decimal(1000,0)"
    assert types["placed"] == "local-timestamp-micros"
    assert types["at"] == types["ts_us"] == "timestamp-micros"
    assert types["source_ts_ms"] == "timestamp-millis"
    assert types["days"] == types["more"] == "json"
    assert types["source_lsn"] == types["transaction_total_order"] == "long"
    assert [one.name for one in known.payload_fields if not one.nullable] == ["op"]

    sent = payload(envelope(), change("u", before={**_ROW, "id": 4}, after=_ROW))
    found, (row,) = _decode(known, sent)
    assert found.is_event.tolist() == [True]
    assert {name: row[name] for name in COLUMNS} == _VALUES
    assert row["before_id"] == 4
    assert row["before_at"] == _NOON
    assert (row["op"], row["source_lsn"]) == ("u", 42)
    assert row["ts_us"] == dt.datetime.fromtimestamp(1_700_000_000, dt.UTC).replace(
        microsecond=456_789
    )
    single = known.format.decode(sent, known.writers)
    assert single["any_number"] == Decimal("1.234")
    assert single["key"]
    assert {one: single[one] for one in ("id", "at")} == {"id": 5, "at": _NOON}


@pytest.mark.parametrize(
    ("op", "before", "after", "row"),
    [
        ("c", None, {"id": 1}, 1),
        ("r", None, {"id": 1}, 1),
        ("u", {"id": 1}, {"id": 2}, 2),
        ("d", {"id": 1}, None, 1),
        ("d", None, None, None),
        ("t", None, None, None),
    ],
)
def test_the_row_is_that_after_a_change_or_before_a_deletion(
    op: str, before: Json | None, after: Json | None, row: int | None, tmp_path: Path
) -> None:
    """A truncation has none."""
    schema = envelope({"id": "int"})
    sent = payload(schema, change(op, before=before, after=after))
    found, (values,) = _decode(contracts(tmp_path, schema), sent)
    assert found.is_event.all()
    assert values["id"] == row


def test_what_is_no_change_is_known_for_what_it_is(tmp_path: Path) -> None:
    """The heartbeat's schema has an id of its own."""
    schema = envelope({"id": "int"})
    known = contracts(tmp_path, schema, (9, HEARTBEAT))
    sent = payload(schema, change("c", after={"id": 1}))
    found, rows = _decode(
        known,
        *(None, sent, payload(HEARTBEAT, {"ts_ms": 1}, 9)),
        payload(HEARTBEAT, {"ts_ms": 1}, 11),
    )
    assert found.is_event.tolist() == [False, True, False, False]
    assert found.skipped == {0: "tombstone", 2: "heartbeat"}
    assert found.unknown_ids == {11}
    for cut in (payload(HEARTBEAT, {"ts_ms": 1}, 9)[:-1], sent[:-1]):
        report = report_payload(cut, known)
        assert report.problem is not None
        assert not report.fields
    assert [one["id"] for one in rows] == [None, 1, None, None]


def test_repeats_share_what_is_compared_and_other_changes_do_not(
    tmp_path: Path,
) -> None:
    """A restarted connector has other clocks and counts."""
    schema = envelope({"id": "int"})
    one = change("c", after={"id": 1})
    again = {**one, "ts_ms": 9, "source": {**one["source"], "ts_ms": 9}}
    others = [change("r", after={"id": 1}), change("c", after={"id": 2})]
    found, _ = _decode(
        contracts(tmp_path, schema),
        *(payload(schema, each) for each in (one, again, *others)),
    )
    assert found.canonical[0] == found.canonical[1]
    assert len(set(found.canonical.to_pylist())) == 3


@pytest.mark.parametrize(
    ("column", "value", "detail"),
    [
        ("at", "2026-11-26T13:00:00", "field row.at: expected an offset"),
        ("at", "infinity", "field row.at: expected a time"),
        ("more", '{"a": 1, "a": 2}', "field row.more"),
        ("more", "__debezium_unavailable_value", "field row.more"),
        ("span", "PT", "field row.span: expected an interval"),
        ("span", "P1W", "field row.span: expected an interval"),
        ("any_number", {"scale": 1001, "value": b"\1"}, "field row.any_number"),
        ("any_number", {"scale": 0, "value": b"\1" * 2000}, "field row.any_number"),
        ("placed", 9_223_372_036_825_200_000, "after.placed"),
        ("opens", 86_400_000_000, "after.opens"),
        ("key", "none", "after.key"),
        ("price", b"\1" * 9, "after.price"),
    ],
)
def test_a_value_that_its_column_does_not_hold_is_a_dead_letter(
    column: str, value: object, detail: str, tmp_path: Path
) -> None:
    """The detail names its place. Whether the column is wanted does not matter."""
    known = contracts(tmp_path)
    sent = payload(envelope(), change("c", after={**_ROW, column: value}))
    decoded = known.decoder(["op"]).decode(pa.array([sent]))
    assert decoded.is_event.tolist() == [False]
    error = known.diagnose(sent)
    assert error is not None
    assert detail in error.detail


@pytest.mark.parametrize(
    ("members", "detail"),
    [
        ({"op": "x"}, "field op: expected one of c, r, u, d, t, m"),
        ({"op": "c"}, "field after: missing or null"),
    ],
)
def test_an_envelope_that_debezium_does_not_write_is_a_dead_letter(
    members: Json, detail: str, tmp_path: Path
) -> None:
    """The detail names the member."""
    schema = envelope({"id": "int"})
    known = contracts(tmp_path, schema)
    error = known.diagnose(payload(schema, {**change("c"), **members}))
    assert error is not None
    assert detail in error.detail


def test_changes_of_an_older_version_are_read_by_the_newer_one(tmp_path: Path) -> None:
    """A column that was added is null, one that was widened has its value."""
    old, new = (
        envelope({"id": "int", "gone": "int"}),
        envelope({"id": "long", "at": COLUMNS["at"], "ratio": "double"}),
    )
    known = contracts(tmp_path, new, (3, old))
    _, rows = _decode(
        known,
        payload(old, change("c", after={"id": 1, "gone": 2}), 3),
        payload(new, change("c", after={"id": 1 << 40, "at": None, "ratio": 1.0})),
    )
    assert [(one["id"], one["at"]) for one in rows] == [(1, None), (1 << 40, None)]
    assert "gone" not in rows[0]


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        (envelope({"op": "int"}), "CONTRACT_FIELD_NAME"),
        (envelope({"source_LSN": "int"}), "CONTRACT_FIELD_NAME"),
        (envelope({"a" * 60: "int"}), "CONTRACT_FIELD_NAME"),
        (HEARTBEAT | {"name": "Order"}, "CONTRACT_NO_CHANGE"),
    ],
)
def test_a_schema_whose_columns_are_not_clear_is_refused(
    schema: Json, code: str, tmp_path: Path
) -> None:
    """Two of one name, a name too long, no change."""
    with pytest.raises(ContractError) as refused:
        contracts(tmp_path, schema)
    assert refused.value.code == code


def test_nothing_here_writes_changes(tmp_path: Path) -> None:
    """A record of columns lacks what only the connector knows."""
    known = contracts(tmp_path)
    contract = known.each[0].contract
    with pytest.raises(EncodeError, match="change of Debezium"):
        contract.format.encode(contract, {"op": "c"})


#: How the JSON converter writes the same columns, as a pipeline names them.
_AS_JSON = {
    "row.id": "integer",
    "row.price": "numeric(10,2) from base64",
    "row.placed": "timestamp epoch us",
    "row.placed3": "timestamp epoch ms",
    "row.at": "timestamptz",
    "row.born": "date epoch days",
    "row.key": "uuid",
    "row.raw": "bytea",
    "row.ratio": "double precision",
    "row.lasts": "bigint",
    "before.at": "timestamptz",
    "op": "text not null",
    "ts_us": "timestamptz epoch us",
    "source.lsn": "bigint",
}


def test_changes_are_read_in_avro_as_in_json(tmp_path: Path) -> None:
    """2,000 random changes by both converters; the two readers share no reading."""
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    source = Random(seed)
    names = [one.removeprefix("row.") for one in _AS_JSON if one.startswith("row.")]
    schema = envelope({name: COLUMNS[name] for name in names})
    as_avro, as_json = [], []
    for _ in range(2_000):
        images = {one: _random_row(names, source) for one in ("before", "after")}
        made = change(source.choice("crud"), **images)
        as_avro.append(payload(schema, made))
        as_json.append(json.dumps(made, default=_as_base64).encode())
    declared = DeclaredFields(fields=_AS_JSON, unknown="ignore", envelope="debezium")
    _, of_avro = _decode(contracts(tmp_path, schema), *as_avro)
    _, of_json = _decode(load_event_contracts([declared.reference]), *as_json)
    assert len(of_json) == len(of_avro) == 2_000
    for avro, other in zip(of_avro, of_json, strict=True):
        assert other == {name: avro[name] for name in other}


def _random_row(names: Iterable[str], source: Random) -> Json:
    moment = source.randint(*NUMBER_BOUNDS["timestamp-micros"])
    offset = dt.timezone(dt.timedelta(minutes=source.randrange(-720, 720)))
    near = dt.datetime.fromtimestamp(source.randrange(1 << 32), offset)
    unscaled = source.randrange(-(10**10) + 1, 10**10)
    values: Json = {
        "id": source.randrange(-(1 << 31), 1 << 31),
        "price": unscaled.to_bytes(5, signed=True),
        "placed": moment,
        "placed3": moment // 1_000,
        "at": near.replace(microsecond=source.randrange(10**6)).isoformat(),
        "born": source.randint(*NUMBER_BOUNDS["date"]),
        "key": str(uuid.UUID(int=source.getrandbits(128))),
        "raw": source.randbytes(source.randrange(9)),
        "ratio": source.gauss(0, 1e9),
        "lasts": source.randrange(-(1 << 63), 1 << 63),
    }
    return {name: None if source.random() < 0.2 else values[name] for name in names}


def _as_base64(value: object) -> str:
    assert isinstance(value, bytes), value
    return base64.b64encode(value).decode()


def test_damaged_changes_are_no_events_alone_and_in_batches(tmp_path: Path) -> None:
    """Both readers agree on 3,000 payloads with some bytes changed or cut off."""
    known = contracts(tmp_path)
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    source = Random(seed)
    whole = payload(envelope(), change("u", before=_ROW, after=_ROW))
    damaged = []
    for _ in range(3_000):
        one = bytearray(whole)
        for _ in range(source.randrange(3)):
            one[source.randrange(5, len(one))] = source.randrange(256)
        damaged.append(
            bytes(one[: source.choice([len(one), source.randrange(len(one))])])
        )
    found, rows = _decode(known, *damaged)
    for sent, is_event, row in zip(damaged, found.is_event.tolist(), rows, strict=True):
        try:
            single = known.format.decode(sent, known.writers)
        except DecodeError:
            assert not is_event
            assert not any(value is not None for value in row.values())
            continue
        assert is_event
        assert single["id"] == row["id"]
    assert 100 < sum(found.is_event) < 2_900
