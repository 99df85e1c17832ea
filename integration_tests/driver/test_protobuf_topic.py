"""A topic of Protocol Buffers becomes a table, by a message of a .proto file."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import NOON, Sent
from integration_tests.harness.replayed import replay
from integration_tests.harness.written_topic import WrittenTopic
from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import Contract, load_contract
from tallyweir.schemas.formats.protobuf.proto_file import compile_source
from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.services.operate.redrive.letter_report import letter_json
from tallyweir.services.produce.emit import emit, plan_faults
from tallyweir.services.produce.faults import FaultRates
from tallyweir.services.produce.producer import EventProducer
from tallyweir.sinks.postgres.audit import explain, narrate, read_letter
from tallyweir.sinks.postgres.server.connection import connect

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_ORDERS = """
syntax = "proto3";
package shop;
import "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "items.proto";
enum State { NEW = 0; PAID = 1; }
message Order {
  string order_id = 1;
  uint64 customer = 2;
  sint64 cents = 3;
  google.protobuf.Timestamp placed_at = 4;
  State state = 5;
  optional string note = 6;
  google.protobuf.Int32Value rating = 7;
  repeated Item items = 8;
  oneof payment { string card = 9; bool cash = 10; }
  google.protobuf.Duration took = 11;
}
"""
_ITEMS = """
syntax = "proto3";
package shop;
message Item { string sku = 1; int64 count = 2; }
"""
_PIPELINE = """
    pipeline: readings
    source:
      topic: {topic}
      format: protobuf
      schema: orders.proto#Order
      event_id: order_id
      event_time: placed_at
      watermark_delay: 1 hour
    validate:
      NEGATIVE_AMOUNT: "cents >= 0"
    outputs:
      - append: {{table: orders}}
      - window:
          table: takings
          fixed: 1 hour
          by: [state]
          aggregate: {{orders: count(*), total: sum(cents)}}
"""
_MOST = Decimal((1 << 64) - 1)
_MOMENT = dt.timedelta(milliseconds=500)
_TOOK: dict[str, object] = {"took": "PT-0.5S", "cash": None}
_ITEM = {"sku": "s", "count": "9007199254740993"}


def _record(number: int, **changed: object) -> dict[str, Any]:
    return {
        "order_id": f"o{number:03}",
        "customer": _MOST,
        "cents": number,
        "placed_at": NOON + dt.timedelta(microseconds=number),
        "state": "PAID",
        "items": '[{"sku": "s", "count": "9007199254740993"}]',
        "cash": False,
    } | changed


def _order(contract: Contract, number: int, **changed: object) -> bytes:
    return encode(contract, _record(number, **changed))


def test_messages_become_rows_and_each_wrong_one_a_dead_letter_with_its_place(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """Values are exact, and a copy with its fields in another order is a duplicate."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    (tmp_path / "orders.proto").write_text(_ORDERS)
    (tmp_path / "items.proto").write_text(_ITEMS)
    world.write_pipeline(_PIPELINE)
    contract = load_contract("orders.proto#Order", tmp_path)
    first = _order(contract, 1)
    begins = first.index(b"\x10")
    payloads = [
        first,
        first[begins:] + first[:begins],
        _order(contract, 1, cents=5),
        _order(contract, 2, state="7", rating=0, note="", card="c", **_TOOK),
        _order(contract, 3, cents=-1),
        _order(contract, 4) + b"\x7a\x01x",
        first[:-1],
        first + b"\x12\x01x",
        b"\x0a\x04o009\x22\x02\x10\x01",
        b"{}",
    ]
    world.topic.send([Sent(value=one) for one in payloads])
    world.run_to_the_end()

    columns = "order_id, customer, cents, state, note, rating, items, card, cash"
    columns += ", took"
    assert world.fetch(f"SELECT {columns} FROM orders ORDER BY 1") == [
        ("o001", _MOST, 1, "PAID", None, None, [_ITEM], None, False, None),
        ("o002", _MOST, 2, "7", "", 0, [_ITEM], "c", None, -_MOMENT),
        ("o004", _MOST, 4, "PAID", None, None, [_ITEM], None, False, None),
    ]
    assert [("7", 1, 2), ("PAID", 2, 5)] == world.fetch(
        "SELECT state, orders, total::int FROM takings ORDER BY 1"
    )
    assert 1 == world.value("SELECT count(*) FROM tallyweir.duplicate_event")
    dead = world.fetch(
        "SELECT kafka_offset, reason, detail, event_id FROM tallyweir.dead_letter "
        "ORDER BY kafka_offset"
    )
    assert [(offset, reason, known) for offset, reason, _, known in dead] == [
        (2, "ID_CONFLICT", "o001"),
        (4, "NEGATIVE_AMOUNT", "o003"),
        (6, "MALFORMED", "o001"),
        (7, "WRONG_TYPE", "o001"),
        (8, "OUT_OF_RANGE", "o009"),
        (9, "MALFORMED", None),
    ], dead
    assert "field customer" in dead[3][2]
    assert "field placed_at" in dead[4][2]
    world.assert_verified()
    with connect(world.home_dsn, application_name="test") as home:
        letter = read_letter(
            home, "readings", topic=world.topic.name, partition=0, offset=7
        )
    shown: Any = letter_json(letter, None, world.pipeline_file)["decoded"]
    assert "customer" in shown["problem"]
    assert [(one["name"], one["value"]) for one in shown["fields"]] == [
        ("order_id", "o001")
    ]


def _probe(key: bytes, text: str) -> tuple[bytes, ...]:
    return fingerprints_of(key, text, None)


_RATES = """
syntax = "proto3";
message Rate { string state = 1; uint32 percent = 2; }
"""
_LOOKED_UP = """
    pipeline: readings
    source:
      topic: {topic}
      format: protobuf
      schema: orders.pb#shop.Order
      event_id: customer
      event_time: placed_at
      watermark_delay: 1 hour
    monitor: {{samples: 3, redact: [note]}}
    enrich:
      - topic: RATES
        schema: rates.proto#Rate
        on: {{state: state}}
        select: {{percent: percent}}
        refresh: 100 milliseconds
    outputs:
      - append: {{table: orders, columns: [order_id, customer, items, percent]}}
"""
_ROWS = """\
order_id,customer,cents,placed_at,state,note,rating,items,card,cash
c1,18446744073709551615,5,2024-05-01T12:00:00Z,PAID,n,1,"[{""sku"": ""s""}]",,true
c2,-1,5,2024-05-01T12:00:00Z,PAID,n,1,[],,true
"""


# Each of these is tested for another format by default.
@pytest.mark.long
def test_messages_are_emitted_looked_up_run_as_a_batch_and_computed_again(
    tmp_path: Path, kafka_bootstrap: str, empty_dsn: str
) -> None:
    """A compiled file serves as well as its source, and a uint64 as an ID."""
    world = DriverWorld(tmp_path, kafka_bootstrap, empty_dsn)
    (tmp_path / "orders.proto").write_text(_ORDERS)
    (tmp_path / "items.proto").write_text(_ITEMS)
    (tmp_path / "orders.pb").write_bytes(compile_source(tmp_path / "orders.proto"))
    (tmp_path / "rates.proto").write_text(_RATES)
    rates = WrittenTopic(kafka_bootstrap, f"rates-{uuid.uuid4().hex[:12]}")
    rates.create(1)
    rate = load_contract("rates.proto#Rate", tmp_path)
    value = encode(rate, {"state": "PAID", "percent": 7})
    rates.send([Sent(value=value, key=b"PAID")])
    world.write_pipeline(_LOOKED_UP.replace("RATES", rates.name))
    contract = load_contract("orders.pb#Order", tmp_path)
    plan = plan_faults(
        contract=contract,
        event_id="customer",
        partitions=2,
        rates=FaultRates(duplicates=0.2, poison=0.2),
    )
    records = [_record(n, note="n", customer=_MOST - n - 1) for n in range(200)]
    report = emit(
        EventProducer(kafka_bootstrap),
        topic=world.topic.name,
        plan=plan,
        records=records,
    )
    world.run_to_the_end()

    assert world.fetch("SELECT order_id, percent FROM orders ORDER BY 1") == [
        (one["order_id"], 7) for one in records
    ]
    poison = sum(report.expected.poison.values())
    assert poison == world.value("SELECT count(*) FROM tallyweir.dead_letter")
    world.assert_verified()
    with connect(world.home_dsn, application_name="test") as home:
        found = explain(home, "readings", str(_MOST - 5), _probe)
    assert "was committed to orders" in " ".join(narrate(found, lambda _: None))
    again = replay(world)
    assert (again.verdict, again.exit_code) == ("VERIFIED BY REPLAY", 0), again.told

    (tmp_path / "orders.csv").write_text(_ROWS)
    world.run_batch("first", tmp_path / "orders.csv")
    assert world.fetch("SELECT * FROM orders WHERE order_id LIKE 'c%'")[0][:4] == (
        "c1",
        _MOST,
        [{"sku": "s", "count": "0"}],
        7,
    )
    assert 1 == world.value(
        "SELECT count(*) FROM tallyweir.dead_letter WHERE reason = 'ROW_MISFIT'"
    )
