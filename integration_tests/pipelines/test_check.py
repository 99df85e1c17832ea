"""Cases of a check file pass through the code of a driver, and fail readably."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tallyweir.schemas.contract import CONTRACTS_FOLDER
from tallyweir.services.local.embedded.state_directory import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def _check(pipeline: Path) -> tuple[int, str, str]:
    """Run the command in the pipeline's folder, as its user does."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tallyweir.services.cli", "check", pipeline.name],
        cwd=pipeline.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, re.sub(r", in \d+ s\.", "", done.stdout), done.stderr


def test_the_documented_example_fails_as_the_page_says(tmp_path: Path) -> None:
    """Its JSON, lookup and window are those that a driver would make."""
    page = (ROOT / "docs" / "check.md").read_text("utf-8")
    pipeline, cases, told = re.findall(r"```(?:yaml)?\n(.*?)```", page, re.DOTALL)
    (tmp_path / "orders.yaml").write_text(pipeline, "utf-8")
    (tmp_path / "orders.check.yaml").write_text(cases, "utf-8")
    code, out, errors = _check(tmp_path / "orders.yaml")
    assert (1, told) == (code, out), out + errors


_AVRO = """
pipeline: orders
source:
  topic: [orders, more-orders]
  schema: SCHEMA
  event_id: header:id
  event_time: ordered_at
  watermark_delay: 1 hour
validate:
  HAS_AMOUNT: amount_cents > 0
filter: currency = 'EUR'
outputs:
  - append: {table: shop.orders, database: billing}
  - outbox: {topic: accepted, key: order_id, select: [order_id, amount_cents]}
  - window: {table: hourly, fixed: 1 hour, aggregate: {orders: count(*)}}
"""
_TABLES = """
CREATE SCHEMA shop;
CREATE TYPE shop.currency AS ENUM ('EUR', 'USD');
CREATE DOMAIN shop.cents AS bigint CHECK (value < 1000);
CREATE TABLE shop.customers (id bigint PRIMARY KEY);
CREATE TABLE shop.orders (
    order_id text, customer_id bigint REFERENCES shop.customers,
    amount_cents shop.cents, currency shop.currency, ordered_at timestamptz,
    kafka_topic text, kafka_partition integer, kafka_offset bigint,
    tallyweir_sequence bigint
);
"""


def test_avro_headers_rules_filters_and_outboxes_are_checked_without_servers(
    tmp_path: Path,
) -> None:
    """A database and a registry that only production knows are not asked for.

    Tables are those that the user's SQL creates, and the watermark stands at noon.
    """
    order = (
        "{order_id: o%s, customer_id: 1, amount_cents: %s, currency: %s, "
        "ordered_at: 2024-05-01T12:00:00Z}"
    )
    late = order.replace("-05-01T12", "-05-01T10")
    expired = order.replace("-05-01T12", "-03-01T12")
    records = [
        (order % (1, 250, "EUR"), "a", "committed"),
        (order % (1, 250, "EUR"), "a", "duplicate"),
        (order % (1, 251, "EUR"), "a", "dead ID_CONFLICT"),
        (order % (2, 0, "EUR"), "b", "dead HAS_AMOUNT"),
        (order % (3, 1, "USD"), "c", "filtered"),
        ("null", "d", "dead EMPTY_PAYLOAD"),
        ("'{}'", "e", "dead"),
        (order % (4, 1000, "EUR"), "f", "dead REJECTED_BY_POSTGRES"),
        (late % (5, 10, "EUR"), "g", "committed"),
        (expired % (6, 10, "EUR"), "h", "expired"),
    ]
    given = "".join(
        f"      - {{value: {value}, topic: orders, headers: {{id: {name}}}, "
        f"becomes: {fate}}}\n"
        for value, name, fate in records
    )
    registered = _AVRO.replace("SCHEMA", "registry\n  subject: orders-value")
    (tmp_path / "orders.yaml").write_text(registered, "utf-8")
    shutil.copy(CONTRACTS_FOLDER / "order.v1.avsc", tmp_path / "registered.v1.avsc")
    (tmp_path / "tables.sql").write_text(_TABLES, "utf-8")
    (tmp_path / "orders.check.yaml").write_text(
        f"""schema: registered.v1.avsc
tables: tables.sql
cases:
  - name: every fate
    watermark: 2024-05-01T12:00:00Z
    records:
{given}
    rows:
      shop.orders:
        - {{order_id: o1, amount_cents: 250, ordered_at: 2024-05-01T14:00:00+02:00}}
        - {{order_id: o5}}
      accepted:
        - {{key: o1, value: {{order_id: o1, amount_cents: 250}}}}
        - {{key: o5}}
      hourly:
        - {{window_start: 2024-05-01T12:00:00Z, orders: 1}}
""",
        "utf-8",
    )
    code, out, errors = _check(tmp_path / "orders.yaml")
    told = (
        "ok      every fate\n"
        "not checked: shop.orders: foreign key orders_customer_id_fkey\n"
        "orders.check.yaml: 1 cases, 0 failed\n"
    )
    assert (0, told) == (code, out), out + errors


def test_all_mistakes_of_a_check_file_are_told_before_spark_starts(
    tmp_path: Path,
) -> None:
    """Each with its line and the fix."""
    (tmp_path / "orders.yaml").write_text(_AVRO.replace("SCHEMA", "order.v1"), "utf-8")
    (tmp_path / "orders.check.yaml").write_text(
        """lookups: {customers: {columns: {id: bigint}, rows: [{id: 1}]}}
cases:
  - name: wrong
    records:
      - {value: {order_id: 1}, topic: orders}
      - {value: x, becomes: lost}
    rows: {order: []}
    watermark: noon
schema: order.avsc
tables: none.sql
""",
        "utf-8",
    )
    code, out, errors = _check(tmp_path / "orders.yaml")
    assert (78, "") == (code, out)
    for place, what in (
        (1, "does not look up in customers"),
        (5, "The value is no event"),
        (6, "There is no topic"),
        (6, "becomes is 'lost'"),
        (7, "order is unknown"),
        (8, "The timestamp is 'noon'"),
        (9, "The schema is 'order.avsc'"),
        (10, "There is no file"),
    ):
        assert re.search(rf"orders\.check\.yaml:{place}: .*{what}", errors), errors
