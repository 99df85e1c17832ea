"""Cases of a check file pass through the code of a driver, and fail readably."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
  schema: order.v1
  event_id: header:id
  event_time: ordered_at
  watermark_delay: 1 hour
validate:
  HAS_AMOUNT: amount_cents > 0
filter: currency = 'EUR'
outputs:
  - append: {table: shop.orders, database: billing}
  - outbox: {topic: accepted, key: order_id, select: [order_id, amount_cents]}
"""


def test_avro_headers_rules_filters_and_outboxes_are_checked_without_servers(
    tmp_path: Path,
) -> None:
    """A database that only production knows is not asked for."""
    order = (
        "{order_id: o%s, customer_id: 1, amount_cents: %s, currency: %s, "
        "ordered_at: 2024-05-01T12:00:00Z}"
    )
    records = [
        (order % (1, 250, "EUR"), "a", "committed"),
        (order % (1, 250, "EUR"), "a", "duplicate"),
        (order % (1, 251, "EUR"), "a", "dead ID_CONFLICT"),
        (order % (2, 0, "EUR"), "b", "dead HAS_AMOUNT"),
        (order % (3, 1, "USD"), "c", "filtered"),
        ("null", "d", "dead EMPTY_PAYLOAD"),
        ("'{}'", "e", "dead"),
    ]
    given = "".join(
        f"      - {{value: {value}, topic: orders, headers: {{id: {name}}}, "
        f"becomes: {fate}}}\n"
        for value, name, fate in records
    )
    (tmp_path / "orders.yaml").write_text(_AVRO, "utf-8")
    (tmp_path / "orders.check.yaml").write_text(
        f"""cases:
  - name: every fate
    records:
{given}
    rows:
      shop.orders:
        - {{order_id: o1, amount_cents: 250, ordered_at: 2024-05-01T14:00:00+02:00}}
      accepted:
        - {{key: o1, value: {{order_id: o1, amount_cents: 250}}}}
""",
        "utf-8",
    )
    code, out, errors = _check(tmp_path / "orders.yaml")
    assert (0, "ok      every fate\norders.check.yaml: 1 cases, 0 failed\n") == (
        code,
        out,
    ), out + errors


def test_all_mistakes_of_a_check_file_are_told_before_spark_starts(
    tmp_path: Path,
) -> None:
    """Each with its line and the fix."""
    (tmp_path / "orders.yaml").write_text(_AVRO, "utf-8")
    (tmp_path / "orders.check.yaml").write_text(
        """lookups: {customers: {columns: {id: bigint}, rows: [{id: 1}]}}
cases:
  - name: wrong
    records:
      - {value: {order_id: 1}, topic: orders}
      - {value: x, becomes: lost}
    rows: {order: []}
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
    ):
        assert re.search(rf"orders\.check\.yaml:{place}: .*{what}", errors), errors
