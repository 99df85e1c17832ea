"""Contracts through a real driver: versions, every type, and every kind of ID."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.driver_world import PIPELINE, DriverWorld
from integration_tests.harness.readings import (
    NOON,
    READING,
    Sent,
    reading,
    sent,
    write_contract,
)
from integration_tests.harness.replayed import replay
from tallyweir.schemas.codec import diagnose, encode
from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.formats.avro.tests.made_payloads import encoded_number
from tallyweir.schemas.formats.framing import Framing
from tallyweir.schemas.formats.known_formats import with_framing
from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.sinks.postgres.audit import explain

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.long
def test_versions_of_a_contract_share_a_topic(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Each pipeline reads both versions as its own; one of them without dedup."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    unit = {"name": "unit", "type": "string", "default": "mm"}
    fields = [*READING["fields"], unit]  # type: ignore[misc]
    newer = write_contract(tmp_path / "reading.v2.avsc", {**READING, "fields": fields})
    everything = world.topic.send(
        [
            sent(world.contract, event_id="old"),
            Sent(value=encode(newer, {**reading(event_id="new"), "unit": "cm"})),
            # Other bytes, so another payload, although all old fields are equal.
            Sent(
                value=encode(newer, {**reading(event_id="old"), "unit": "mm"}),
                fate="ID_CONFLICT",
            ),
            sent(world.contract, event_id="old", partition=1, fate="duplicate"),
        ]
    )
    world.run_to_the_end()
    world.assert_fates(everything)

    second = (
        PIPELINE.replace("pipeline: readings", "pipeline: readings-2")
        .replace("reading.v1", "reading.v2")
        .replace("table: readings", "table: readings_2")
    )
    world.write_pipeline(f"{second}    deduplicate: off\n")
    world.run_to_the_end()
    world.assert_verified("readings-2")
    assert [("new", "cm"), ("old", "mm"), ("old", "mm"), ("old", "mm")] == world.fetch(
        "SELECT event_id, unit FROM readings_2 ORDER BY 1, 2"
    )
    assert not world.fetch(
        "SELECT FROM tallyweir.seen_id_run WHERE pipeline = 'readings-2'"
    )


def test_cloud_events_are_told_apart_by_source_and_id(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """The pair is the ID; without conflicts any other payload is a repeat."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    by_header = PIPELINE.replace("event_id: event_id", "event_id: header:ce_id")
    world.write_pipeline(f"{by_header}    deduplicate: {{{{conflicts: false}}}}\n")

    def event(
        *headers: tuple[str, bytes],
        amount: int = 1,
        fate: str = "committed",
    ) -> Sent:
        return Sent(
            value=encode(world.contract, reading(amount=amount)),
            headers=[*headers],
            fate=fate,
        )

    one, two = ("ce_id", b"1"), ("ce_id", b"2")
    a, b = ("ce_source", b"/a"), ("ce_source", b"/b")
    everything = world.topic.send(
        [
            event(one, a),
            event(one, b),
            event(a, two),
            # Joined without their lengths, these would be "/a1" and "1" once more.
            event(("ce_id", b"a1"), ("ce_source", b"/")),
            event(one),
            event(one, a, ("other", b"\xff"), fate="duplicate"),
            # In the same partition: of two, the one whose task asks first would count.
            event(one, a, amount=2, fate="duplicate"),
            event(one, fate="duplicate"),
            # Of a repeated header the last counts.
            event(two, ("ce_source", b"/c"), one, a, fate="duplicate"),
            event(one, b, two, a, fate="duplicate"),
            event(one, ("ce_id", b""), a, fate="MISSING_ID"),
            event(a, fate="MISSING_ID"),
            event(fate="MISSING_ID"),
            event(("ce_id", b""), a, fate="MISSING_ID"),
            event(("ce_id", b"\xff\xfe"), a, fate="UNSTORABLE_VALUE"),
            event(("CE_ID", b"1"), a, fate="MISSING_ID"),
        ]
    )
    world.run_to_the_end()
    world.assert_fates(everything)
    with psycopg.connect(home_dsn) as home:

        def remembered(event_id: str, source: str | None) -> int:
            found = explain(
                home,
                "readings",
                event_id,
                lambda key, text: fingerprints_of(key, text, source),
            )
            return len(found.catalog_hits)

        assert remembered("1", "/a") == remembered("1", "/b") == 1
        assert remembered("2", "/a") == remembered("a1", "/") == 1
        assert remembered("2", "/b") == remembered("2", None) == 0
        assert remembered("1", None) == 1, "one came without a source"


_EVERYTHING: dict[str, object] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": "string"},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "local",
            "type": {"type": "long", "logicalType": "local-timestamp-micros"},
        },
        {
            "name": "price",
            "type": {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 10,
                "scale": 2,
            },
        },
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "int"}},
        {
            "name": "place",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [
                    {"name": "city", "type": ["null", "string"]},
                    {"name": "heights", "type": {"type": "array", "items": "double"}},
                ],
            },
        },
    ],
}

_EVERYTHING_PIPELINE = """
    pipeline: everything
    source:
      topic: {topic}
      schema: everything.v1.avsc
      event_id: id
      event_time: at
      watermark_delay: 1 hour
    validate:
      NO_TAGS: "size(tags) > 0"
    outputs:
      - append: {{table: readings}}
      - window:
          table: everything_by_hour
          fixed: 1 hour
          by: [flag, day]
          aggregate:
            n: count(*)
            price: sum(price)
            mean: avg(single)
            first: min(text)
            last: max(local)
            tags: sum(size(tags))
"""


def test_every_type_of_avro_arrives_as_what_it_is(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Values come back as they were sent, nested ones as JSON; IDs may be numbers."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    contract = write_contract(tmp_path / "everything.v1.avsc", _EVERYTHING)
    world.write_pipeline(_EVERYTHING_PIPELINE)
    local = NOON.replace(tzinfo=None) + dt.timedelta(microseconds=7)
    record: dict[str, object] = {
        "id": -(2**63),
        "at": NOON,
        "flag": True,
        "small": -(2**31),
        "single": 0.5,
        "double": 1e300,
        "raw": b"\x00\xff",
        "text": "Ünïcode ☃",
        "digest": b"\x00\x01\x02\x03",
        "day": dt.date(1600, 2, 29),
        "local": local,
        "price": Decimal("-12345678.90"),
        "token": str(uuid.UUID(int=7)),
        "tags": ["a", 'quote " and \\'],
        "sizes": {"x": 1},
        "place": {"city": None, "heights": [0.5, -1.0]},
    }
    untagged = {**record, "id": 1, "tags": []}
    everything = world.topic.send(
        [
            Sent(value=encode(contract, record)),
            Sent(value=encode(contract, {**record, "id": 0, "price": Decimal("0.10")})),
            Sent(value=encode(contract, record), fate="duplicate"),
            Sent(value=encode(contract, record) + b"\x00", fate="TRAILING_BYTES"),
            Sent(value=encode(contract, record)[:-1], fate="MALFORMED"),
            Sent(value=encode(contract, untagged), fate="NO_TAGS"),
            # jsonb has no NUL; Postgres itself says so.
            Sent(
                value=encode(contract, {**record, "id": 2, "tags": ["a\0"]}),
                fate="REJECTED_BY_POSTGRES",
            ),
        ]
    )
    world.run_to_the_end()

    ((row, kinds),) = world.fetch(
        "SELECT to_jsonb(r), (SELECT jsonb_object_agg(column_name, data_type) "
        "FROM information_schema.columns WHERE table_name = 'readings') "
        "FROM readings r WHERE id < 0"
    )
    assert {
        "tags": "jsonb",
        "sizes": "jsonb",
        "place": "jsonb",
        "price": "numeric",
    } == {name: kinds[name] for name in ("tags", "sizes", "place", "price")}
    nested = {name: record[name] for name in ("tags", "sizes", "place")}
    assert nested == {name: row[name] for name in nested}
    plain = [name for name in record if name not in nested]
    (stored,) = world.fetch(f"SELECT {', '.join(plain)} FROM readings WHERE id < 0")
    assert {name: record[name] for name in plain} == dict(
        zip(plain, stored, strict=True)
    )
    windows = world.fetch(
        "SELECT flag, day, n, price, mean, first, last, tags FROM everything_by_hour"
    )
    total = Decimal("-12345678.80")
    assert [(True, record["day"], 2, total, 0.5, record["text"], local, 4)] == windows
    world.assert_conserved(everything)
    world.assert_verified("everything")


def _of(field: str, kind: str, logical: str, **more: object) -> dict[str, object]:
    return {"name": field, "type": {"type": kind, "logicalType": logical, **more}}


_BEYOND_SPARK: dict[str, object] = {
    "type": "record",
    "name": "BeyondSpark",
    "fields": [
        {"name": "id", "type": "string"},
        _of("at", "long", "timestamp-nanos"),
        _of("local", "long", "local-timestamp-nanos"),
        _of("opens", "int", "time-millis"),
        _of("closes", "long", "time-micros"),
        _of("lasts", "fixed", "duration", name="Lasts", size=12),
        _of("token", "fixed", "uuid", name="Token", size=16),
        _of("amount", "bytes", "decimal", precision=64, scale=10),
        _of("digits", "fixed", "decimal", name="Digits", size=40, precision=90),
        {"name": "price", "type": ["null", "long", "string", "double"]},
        {"name": "slots", "type": {"type": "array", "items": "Slot"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
_SLOT: dict[str, object] = {
    "type": "record",
    "name": "Slot",
    "fields": [
        _of("from", "int", "time-millis"),
        {"name": "n", "type": ["int", "string"]},
    ],
}
_BEYOND_SPARK["fields"][10]["type"]["items"] = _SLOT  # type: ignore[index]

_BEYOND_SPARK_PIPELINE = """
    pipeline: beyond
    source:
      topic: {topic}
      schema: beyond_spark.v1.avsc
      event_id: id
      event_time: at
      watermark_delay: 1 hour
    validate:
      OPENS_LATE: "opens < '12'"
      NO_TAGS: "size(tags) > 0"
    monitor: {{samples: 3}}
    outputs:
      - append: {{table: readings}}
      - outbox:
          topic: {topic}-out
          key: opens
      - window:
          table: beyond_by_hour
          fixed: 1 hour
          by: [opens]
          aggregate: {{n: count(*), amount: max(amount)}}
"""


def _assert_types(world: DriverWorld) -> None:
    """Each column has the type that holds its values."""
    ((kinds,),) = world.fetch(
        "SELECT jsonb_object_agg(column_name, data_type) "
        "FROM information_schema.columns WHERE table_name = 'readings'"
    )
    assert {
        "at": "timestamp with time zone",
        "local": "timestamp without time zone",
        "opens": "time without time zone",
        "closes": "time without time zone",
        "lasts": "interval",
        "token": "text",
        "amount": "numeric",
        "digits": "numeric",
        "price": "jsonb",
        "slots": "jsonb",
        "tags": "jsonb",
    } == {
        name: kind
        for name, kind in kinds.items()
        if name in _BEYOND_RECORD and name != "id"
    }


_BEYOND_AT = NOON.replace(microsecond=123_456)
_WIDE, _WIDEST = Decimal(f"-{'9' * 54}.{'9' * 9}8"), Decimal("1" + "0" * 89)
_BEYOND_RECORD: dict[str, object] = {
    "id": "a",
    "at": _BEYOND_AT,
    "local": _BEYOND_AT.replace(tzinfo=None),
    "opens": dt.time(8, 30, 0, 5_000),
    "closes": dt.time(23, 59, 59, 999_999),
    "lasts": "P14M3DT4.005S",
    "token": uuid.UUID(int=7),
    "amount": _WIDE,
    "digits": _WIDEST,
    "price": {"long": 2**63 - 1},
    "slots": [
        {"from": dt.time(7), "n": {"int": 1}},
        {"from": dt.time(7, 0, 1), "n": {"string": "1"}},
    ],
    "tags": ["x"],
}


def test_types_that_spark_does_not_hold_arrive_exactly(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Times, durations, wide decimals, unions: each in its own type of Postgres."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    contract = write_contract(tmp_path / "beyond_spark.v1.avsc", _BEYOND_SPARK)
    world.write_pipeline(_BEYOND_SPARK_PIPELINE)
    record, at = _BEYOND_RECORD, _BEYOND_AT
    late = {**record, "id": "b", "opens": dt.time(12)}
    raw = encode(contract, {**record, "id": "d"})
    none = encode(contract, {**record, "id": "c", "price": None})
    nanos = encoded_number(int(at.timestamp()) * 10**9 + 123_456_000)
    inexact = encoded_number(int(at.timestamp()) * 10**9 + 123_456_001)
    assert raw.count(nanos) == 2
    everything = world.topic.send(
        [
            Sent(value=encode(contract, record)),
            Sent(value=none),
            Sent(value=encode(contract, record), fate="duplicate"),
            Sent(value=encode(contract, late), fate="OPENS_LATE"),
            Sent(value=raw.replace(nanos, inexact, 1), fate="MALFORMED"),
            Sent(value=encode(contract, record)[:-1], fate="MALFORMED"),
        ]
    )
    world.run_to_the_end()
    _assert_types(world)
    (row,) = world.fetch(
        "SELECT at, local, opens, closes, token, amount, digits, price, slots, tags, "
        "lasts = '14 mons 3 days 4.005 s'::interval, lasts::text "
        "FROM readings WHERE id = 'a'"
    )
    slots = [
        {"from": "07:00:00.000000", "n": {"int": 1}},
        {"from": "07:00:01.000000", "n": {"string": "1"}},
    ]
    plain = [record[name] for name in ("at", "local", "opens", "closes")]
    assert (*plain, str(record["token"]), _WIDE, _WIDEST) == row[:7]
    assert ({"long": 2**63 - 1}, slots, ["x"], True) == row[7:11]
    assert row[11] == "1 year 2 mons 3 days 00:00:04.005"
    assert [(None,)] == world.fetch("SELECT price FROM readings WHERE id = 'c'")
    assert [("08:30:00.005000", 2, f"{_WIDE:f}")] == world.fetch(
        "SELECT opens, n, amount FROM beyond_by_hour"
    )
    (message, key) = world.fetch(
        "SELECT convert_from(value, 'UTF8')::json, convert_from(key, 'UTF8') "
        "FROM tallyweir.outbox ORDER BY kafka_offset LIMIT 1"
    )[0]
    assert (message["opens"], key) == ("08:30:00.005000", "08:30:00.005000")
    assert message["lasts"] == "P14M3DT4.005S"
    assert message["price"] == {"long": 2**63 - 1}
    world.assert_conserved(everything)
    world.assert_verified("beyond")
    again = replay(world)
    assert ("VERIFIED BY REPLAY", 0) == (again.verdict, again.exit_code), again.told


@pytest.mark.parametrize("framing", [Framing.SINGLE_OBJECT, Framing.RAW])
def test_other_framings_are_read_as_the_pipeline_says(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str, framing: Framing
) -> None:
    """By Spark for a rule, by tasks for the rows; other framings are dead letters."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    framed = f"schema: reading.v1.avsc\n      framing: {framing}"
    rule = "    validate: {{NEGATIVE: amount >= 0}}\n    outputs:"
    world.write_pipeline(
        PIPELINE.replace("schema: reading.v1.avsc", framed).replace(
            "    outputs:", rule
        )
    )
    contract = load_contract(with_framing("reading.v1.avsc", framing), tmp_path)
    negative = encode(contract, reading(event_id="b", amount=-1))
    good = encode(contract, reading(event_id="a"))
    confluents = encode(world.contract, reading(event_id="c"))
    error = diagnose(confluents, {contract.schema_id: contract})
    assert error is not None
    everything = world.topic.send(
        [
            Sent(value=good),
            Sent(value=good, fate="duplicate"),
            Sent(value=negative, fate="NEGATIVE"),
            Sent(value=good + b"\0", fate="TRAILING_BYTES"),
            Sent(value=good[:-1], fate="MALFORMED"),
            Sent(value=confluents, fate=error.reason_code),
            Sent(value=None, fate="EMPTY_PAYLOAD"),
        ]
    )
    world.run_to_the_end()
    world.assert_fates(everything)
    ((detail,),) = world.fetch(
        "SELECT detail FROM tallyweir.dead_letter WHERE payload = %s", confluents
    )
    assert "write framing: confluent" in detail
