"""Several contracts as one stream: each event by the contract that wrote it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from integration_tests.harness.command_line import CommandLine
from integration_tests.harness.readings import NOON, Sent
from integration_tests.harness.shop_world import AT, ID, INSTANT, Shop, write_record
from integration_tests.harness.watched_driver import spark_jars
from tallyweir.schemas.codec import encode
from tallyweir.schemas.formats.framing import HEADER_BYTES, frame
from tallyweir.sinks.postgres.server.naming import HOME

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_CONFIGURATION = 78
_EVENTS = """
    SELECT event_id, amount, currency, payment_id, kafka_topic, kafka_partition,
           kafka_offset
    FROM events ORDER BY event_id
"""
_FATES = """
    SELECT kafka_partition, kafka_offset, 'committed' FROM public.readings
    UNION ALL
    SELECT kafka_partition, kafka_offset, reason FROM tallyweir.dead_letter
    UNION ALL
    SELECT kafka_partition, kafka_offset, 'duplicate' FROM tallyweir.duplicate_event
    UNION ALL
    SELECT kafka_partition, kafka_offset, 'filtered' FROM tallyweir.filtered_event
"""


@pytest.fixture
def shop(tmp_path: Path, kafka_bootstrap: str, home_dsn: str) -> Shop:
    """A shop without any event."""
    return Shop(tmp_path, kafka_bootstrap, home_dsn)


@pytest.fixture
def commands(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """A terminal beside the shop."""
    monkeypatch.setenv("TALLYWEIR_KAFKA_BOOTSTRAP", shop.topic.bootstrap)
    return CommandLine(
        monkeypatch=monkeypatch, capsys=capsys, databases={HOME: shop.home_dsn}
    )


@pytest.mark.long
def test_the_rows_are_those_of_the_page(shop: Shop) -> None:
    """docs/pipelines.md shows them; a payment lies among the orders."""
    shop.orders.send(
        [
            shop.ordered("o1", 30),
            shop.ordered("o2", 8, "USD"),
            shop.paid("p2", "x8", 8),
        ]
    )
    shop.payments.send([shop.paid("p1", "x7", 30), Sent(value=b"no event")])
    shop.run_to_the_end()
    orders, payments = shop.orders.name, shop.payments.name
    assert [
        ("o1", 30, "EUR", None, orders, 0, 0),
        ("o2", 8, "USD", None, orders, 0, 1),
        ("p1", 30, None, "x7", payments, 0, 0),
        ("p2", 8, None, "x8", orders, 0, 2),
    ] == shop.fetch(_EVENTS)
    paid = shop.fetch("SELECT payment_id, amount FROM payments ORDER BY 1")
    assert [("x7", 30), ("x8", 8)] == paid
    in_orders = shop.fetch("SELECT event_id FROM ordered ORDER BY 1")
    assert [("o1",), ("o2",), ("p2",)] == in_orders
    dead = "SELECT kafka_topic, kafka_offset, reason FROM tallyweir.dead_letter"
    assert [(payments, 1, "BAD_MAGIC")] == shop.fetch(dead)
    shop.assert_verified("shop")


_ONE_TOPIC = """
    pipeline: readings
    source:
      topic: {topic}
      schema: [payment.v1.avsc, order.v2.avsc]
      event_id: event_id
      event_time: at
      watermark_delay: 1 hour
    validate:
      TOO_MUCH: amount IS NULL OR amount < 1000
    outputs:
      - append: {{table: readings}}
      - append: {{table: payments, where: payment_id IS NOT NULL}}
      - append: {{table: orders, where: payment_id IS NULL}}
      - window:
          table: by_hour
          fixed: 1 hour
          by: [currency]
          aggregate: {{payments: count(payment_id), total: sum(amount)}}
"""


def _damaged(shop: Shop) -> list[Sent]:
    """Payloads that are no events, each for its reason."""
    order, payment = shop.ordered("d", 1, "USD").value, shop.paid("d", "x", 1).value
    assert order is not None
    assert payment is not None
    body = payment[HEADER_BYTES:]
    return [
        Sent(value=order + b"\x00", fate="TRAILING_BYTES", partition=1),
        Sent(value=payment + b"\x00", fate="TRAILING_BYTES"),
        Sent(value=order[:-1], fate="MALFORMED"),
        Sent(value=payment[:-1], fate="MALFORMED", partition=1),
        Sent(value=frame(77, body), fate="UNKNOWN_SCHEMA"),
        # A payment under the id of the orders is a text of 12 bytes, and too short.
        Sent(value=frame(shop.new_order.schema_id, body), fate="MALFORMED"),
        Sent(value=None, fate="EMPTY_PAYLOAD"),
        shop.ordered("much", 1_000, fate="TOO_MUCH"),
        shop.paid("more", "x", 2_000, fate="TOO_MUCH", partition=1),
        shop.paid("", "x", 1, fate="MISSING_ID"),
    ]


def _numbered(shop: Shop, count: int) -> list[Sent]:
    sent = []
    for number in range(count):
        name, part = f"n{number}", number % 2
        sent += [
            shop.ordered(f"{name}-old", number, partition=part),
            shop.ordered(f"{name}-new", number, "USD", partition=part),
            shop.paid(f"{name}-paid", f"x{number}", number, partition=1 - part),
        ]
    return sent


@pytest.mark.long
def test_contracts_in_one_topic_are_told_apart_through_kills(
    shop: Shop, commands: CommandLine
) -> None:
    """Good, old, broken and doubled ones: each meets its fate once."""
    shop.write_pipeline(_ONE_TOPIC)
    good = _numbered(shop, 30)
    free = shop.paid("free", "x-free", None)
    everything = shop.topic.send([*good[:40], *_damaged(shop), *good[40:], free])
    for fault in ("after:voted:2:SIGKILL", "before:sealed:2:SIGKILL"):
        with shop.driver(batch=30, fault=fault) as driver:
            assert driver.wait() == -9, driver.text
    shop.run_to_the_end(batch=30)
    shop.assert_fates(everything)

    # One history of IDs over both contracts, and both versions of one.
    again = [
        shop.ordered("n1-old", 1, fate="duplicate", partition=0),
        shop.paid("n2-paid", "x2", 2, fate="duplicate", partition=0),
        shop.paid("n3-old", "x3", 3, fate="ID_CONFLICT"),
        shop.ordered("n4-paid", 4, fate="ID_CONFLICT"),
        shop.ordered("n5-old", 5, "EUR", fate="ID_CONFLICT", partition=1),
    ]
    everything |= shop.topic.send(again)
    shop.run_to_the_end()
    shop.assert_fates(everything)
    assert 31 == shop.value("SELECT count(*) FROM payments WHERE currency IS NULL")
    assert 60 == shop.value("SELECT count(*) FROM orders WHERE payment_id IS NULL")
    total = sum(range(30))
    windows = "SELECT currency, payments, total FROM by_hour ORDER BY 1"
    assert [("EUR", 0, total), ("USD", 0, total), (None, 31, total)] == (
        shop.fetch(windows)
    )

    file = str(shop.pipeline_file)
    code, told, error = commands.run("verify", "readings", "--recount")
    assert 0 == code, told + error
    code, told, _ = commands.run("why", file, "n3-old")
    assert 0 == code
    assert "'payment_id': 'x3'" in told
    code, told, _ = commands.run("why", file, "n4-paid")
    assert 0 == code
    assert "'amount': 4" in told
    # A range of the topic brings nothing that was not there.
    done = shop.run_batch("again", f"{shop.topic.name}:0:0-10")
    assert (10, 0) == (done["read"], done["committed"])


@pytest.mark.long
def test_rows_of_a_file_are_sent_as_the_contract_that_is_chosen(
    shop: Shop, commands: CommandLine, tmp_path: Path
) -> None:
    """``emit`` asks for it; a run of files is refused, since no row says it."""
    orders, payments = tmp_path / "orders.csv", tmp_path / "payments.csv"
    at = "2024-05-01T12:00:00Z"
    orders.write_text(f"event_id,at,amount,currency\no1,{at},3,USD\n")
    payments.write_text(f"event_id,at,amount,payment_id\np1,{at},,x1\n")

    def emit(rows: Path, *options: str) -> tuple[int, str, str]:
        topic = ("--topic", shop.orders.name)
        file = str(shop.pipeline_file)
        return commands.run("emit", file, "--input", str(rows), *topic, *options)

    code, _, error = emit(orders)
    assert _CONFIGURATION == code
    assert "SCHEMA_NOT_CHOSEN" in error
    for rows, schema in ((orders, "order.v2.avsc"), (payments, "payment.v1.avsc")):
        code, told, error = emit(rows, "--schema", schema)
        assert 0 == code, told + error
    shop.run_to_the_end()
    found = shop.fetch("SELECT event_id, amount, currency, payment_id FROM events")
    assert [("o1", 3, "USD", None), ("p1", None, None, "x1")] == sorted(found)
    with shop.batch("files", orders) as run:
        assert run.wait() == _CONFIGURATION, run.text
    assert "RUN_SEVERAL_CONTRACTS" in run.text


_ALIASED = """
    pipeline: readings
    source:
      topic: {topic}
      schema: [order.v2.avsc, refund.v2.avsc]
      event_id: event_id
      event_time: at
      watermark_delay: 1 hour
    outputs:
      - append: {{table: readings}}
"""


@pytest.mark.long
def test_an_alias_gives_a_field_the_common_name(shop: Shop) -> None:
    """Producers go on with the version that calls it otherwise."""
    written = write_record(
        shop.directory,
        "refund.v1.avsc",
        {"name": "refund", "type": "string"},
        {"name": "back_at", "type": INSTANT},
    )
    write_record(
        shop.directory,
        "refund.v2.avsc",
        {**ID, "aliases": ["refund"]},
        {**AT, "aliases": ["back_at"]},
    )
    shop.write_pipeline(_ALIASED)
    refund = encode(written, {"refund": "r1", "back_at": NOON})
    everything = shop.topic.send(
        [
            Sent(value=refund),
            shop.ordered("o1", 1),
            Sent(value=refund, fate="duplicate", partition=1),
            Sent(value=refund + b"\x00", fate="TRAILING_BYTES"),
        ]
    )
    shop.run_to_the_end()
    shop.assert_fates(everything)
    rows = shop.fetch("SELECT event_id, at, amount FROM readings ORDER BY 1")
    assert [("o1", NOON, 1), ("r1", NOON, None)] == rows


_BY_TOPIC = """
    pipeline: readings
    source:
      topic: {topics}
      schema: [order.v2.avsc, payment.v1.avsc]
      event_id: event_id
      event_time: at
      watermark_delay: 1 hour
    filter: "kafka_topic NOT LIKE '%-payments' OR payment_id IS NOT NULL"
    validate:
      ORDER_WITHOUT_AMOUNT: "Kafka_Topic LIKE '%-payments' OR amount > 0"
    outputs:
      - append: {{table: readings}}
      - window:
          table: by_hour
          fixed: 1 hour
          aggregate:
            ordered: "count_if(kafka_topic = '{topic}')"
            latest: max(kafka_topic)
"""


@pytest.mark.parametrize("topics", ["[{topic}, {topic}-payments]", "{topic}"])
@pytest.mark.long
def test_expressions_may_ask_for_the_topic(shop: Shop, topics: str) -> None:
    """Of one topic or of several; a batch run's rows have the run's own."""
    shop.write_pipeline(_BY_TOPIC.replace("{topics}", topics))
    orders: Sequence[Sent] = [
        shop.ordered("o1", 5),
        shop.ordered("o2", 0, fate="ORDER_WITHOUT_AMOUNT"),
        shop.paid("p1", "x", 0, fate="ORDER_WITHOUT_AMOUNT"),
        shop.paid("p2", "x", 1),
    ]
    shop.orders.send(orders)
    expected = [(shop.orders.name, 0, n, one.fate) for n, one in enumerate(orders)]
    if "," in topics:
        payments: Sequence[Sent] = [
            shop.paid("p3", "x", 0),
            shop.ordered("o3", 7, fate="filtered"),
        ]
        shop.payments.send(payments)
        name = shop.payments.name
        expected += [(name, 0, n, one.fate) for n, one in enumerate(payments)]
    shop.run_to_the_end()
    fates = _FATES.replace("SELECT ", "SELECT kafka_topic, ")
    assert expected == sorted(shop.fetch(fates))
    latest = expected[-1][0]
    assert [(2, latest)] == shop.fetch("SELECT ordered, latest FROM by_hour")
    shop.assert_verified()

    shop.topic.send([shop.ordered("o4", 9)])
    shop.run_batch("more", f"{shop.topic.name}:0:4-5")
    rows = "SELECT event_id FROM readings WHERE kafka_topic = 'batch:more'"
    assert [("o4",)] == shop.fetch(rows)
    assert 2 == shop.value("SELECT ordered FROM by_hour"), "a run is no topic"
    shop.assert_verified()


def test_every_column_is_what_its_own_contract_wrote(tmp_path: Path) -> None:
    """By chance, over all flat types, two versions of one, and damaged payloads."""
    module = "integration_tests.harness.decoded_contracts"
    run = subprocess.run(
        [sys.executable, "-m", module, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TALLYWEIR_SPARK_JARS": spark_jars()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert 0 == run.returncode, run.stdout
