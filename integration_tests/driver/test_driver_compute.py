"""Computed columns through a real driver: used as fields are, exact or dead."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.noted_slice import noted
from integration_tests.harness.readings import NOON, Sent, sent
from integration_tests.harness.replayed import replay
from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.sinks.postgres.audit import explain, narrate, read_samples
from tallyweir.sinks.postgres.server.connection import connect

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"
_AT = dt.datetime(2024, 5, 1, 23, 30, tzinfo=dt.UTC)


def _example() -> str:
    """Return the page's pipeline, for another topic, with an address that is hidden."""
    text = _PAGE.read_text("utf-8").partition("\n## Computed columns\n")[2]
    example = text.partition("```yaml\n")[2].partition("```")[0]
    changed = example.replace("pipeline: orders", "pipeline: readings")
    changed = changed.replace("topic: orders", "topic: {topic}")
    changed = changed.replace(
        "columns: [order_id, total,", "columns: [domain, order_id, total,"
    )
    assert changed.count("domain") == 2, example
    for brace in "{}":
        changed = changed.replace(brace, brace * 2)
    hidden = "monitor: {{samples: 5, redact: [email]}}\n"
    return changed.replace("{{topic}}", "{topic}") + hidden


def _order(number: int, **changed: object) -> Sent:
    order = {
        "order_id": f"o{number}",
        "email": f"p{number}@example.org",
        "country": " de",
        "price": 19.99,
        "quantity": 2,
        "boxes": 1,
        "placed_at": (_AT + dt.timedelta(hours=number)).isoformat(),
    }
    return Sent(value=json.dumps(order | changed).encode())


def test_computed_columns_are_used_as_fields_are_and_fail_by_themselves(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """A replay computes them anew; what derives from a redacted field is hidden."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_example())
    world.execute(
        "CREATE TABLE markets (code text PRIMARY KEY, region text)",
        "INSERT INTO markets VALUES ('DE', 'Europe')",
    )
    world.topic.send(
        [
            _order(0),
            _order(1, quantity=30, boxes=4),
            _order(2, country=None),
            _order(3, boxes=0),
            _order(4, price=0),
            _order(5, quantity="many"),
            _order(0),
        ]
    )
    world.run_to_the_end()

    rows = world.fetch(
        "SELECT order_id, total, per_box, day, market, domain, is_bulk FROM orders "
        "ORDER BY 1"
    )
    day, next_day = dt.date(2024, 5, 1), dt.date(2024, 5, 2)
    small, org = Decimal("39.98"), "example.org"
    large = Decimal("599.70"), Decimal("149.925")
    assert rows == [
        ("o0", small, small, day, "DE", org, False),
        ("o1", *large, next_day, "DE", org, False),
        ("o2", small, small, next_day, None, org, False),
    ]
    assert [("o1", next_day)] == world.fetch("SELECT order_id, day FROM large_orders")
    assert [
        (day, "DE", "Europe", 1, small),
        (next_day, "DE", "Europe", 1, large[0]),
        (next_day, None, None, 1, small),
    ] == world.fetch(
        "SELECT day, market, region, orders, taken FROM takings ORDER BY window_start"
    )
    assert 3 == world.value("SELECT count(*) FROM tallyweir.outbox")
    assert [
        (
            "EXPRESSION_FAILED",
            (
                "The computed column per_box, total / boxes, has no value: "
                "total / boxes divides by zero."
            ),
        ),
        ("FREE", "Not true of the event: total > 0"),
    ] == world.fetch(
        "SELECT reason, detail FROM tallyweir.dead_letter WHERE kafka_offset < 5 "
        "ORDER BY kafka_offset"
    )
    assert 1 == world.value("SELECT count(*) FROM tallyweir.duplicate_event")
    world.assert_verified()
    assert "divides by zero" in _why(world, "o3")
    assert "committed to orders" in _why(world, "o1")
    _assert_hidden(world)
    assert replay(world).verdict == "VERIFIED BY REPLAY"


def _why(world: DriverWorld, event_id: str) -> str:
    with connect(world.home_dsn, application_name="test") as home:
        found = explain(
            home, "readings", event_id, lambda k, t: fingerprints_of(k, t, None)
        )
    return " ".join(narrate(found, lambda _: None))


def _assert_hidden(world: DriverWorld) -> None:
    """Nothing of an address is in a sample, whichever step it is of."""
    with connect(world.home_dsn, application_name="test") as home:
        kept = read_samples(home, "readings")
    shown: dict[str, Any] = {one.step: one for one in kept.steps}
    assert {"decode", "compute", "validate", "enrich", "stage"} <= shown.keys()
    assert "example.org" not in repr(kept)
    assert {"email", "domain"} <= set(shown["compute"].redacted)
    totals = [dict(row.fields)["total"] for row in shown["compute"].rows]
    assert sorted(totals) == ["0.00", "39.98", "39.98", "39.98", "599.70"]


_PYTHON = """
from datetime import timedelta
from pyspark.sql import functions as F
from tallyweir import (
    Append, Join, JoinSide, Pipeline, Source, ValueState, Within, stateful,
)


def transform(events):
    return events.withColumn("doubled", F.col("each") * 2)


@stateful(
    table="totals",
    key=["kind"],
    columns={{"total": "bigint"}},
    state={{"total": ValueState(0)}},
)
def totals(key, events, state, timers, watermark):
    for number in events["each"].to_pylist():
        state["total"].value += number
        yield {{"total": state["total"].value}}


pipeline = Pipeline(
    name="readings",
    source=Source(
        topic="{topic}",
        schema="reading.v1.avsc",
        event_id="event_id",
        event_time="at",
        watermark_delay=timedelta(hours=1),
    ),
    compute={{
        "each": "amount div divisor",
        "kind": "concat(sensor, '-', lower(grade))",
        "shape": "named_struct('each', each, 'of', array(amount, divisor))",
    }},
    transform=transform,
    outputs=(
        Append(table="readings", columns=("event_id", "doubled", "shape")),
        totals,
        Join(
            table="pairs",
            on=("kind",),
            left=JoinSide(where="each > 10", select={{"more": "each"}}),
            right=JoinSide(where="each <= 10", select={{"less": "each"}}),
            within=Within(before=timedelta(hours=1), after=timedelta(hours=1)),
        ),
    ),
)
"""
_STAGES = """
import json, sys
from tallyweir import open_slice
with open_slice(sys.argv[1]).stages() as stages:
    columns = stages.spark_frame("compute").columns
    rows = stages.validated()[["event_id", "each", "kind", "outcome", "detail"]]
    summary = stages.compare_with_committed().summary.to_dict("index")
    shown = json.loads(rows.to_json(orient="values"))
    print(json.dumps([columns, shown, summary]))
"""


def test_functions_joins_transforms_runs_and_notebooks_see_computed_columns(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """An event without one reaches none of them."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    world.pipeline_file = tmp_path / "readings.py"
    world.write_pipeline(_PYTHON)
    amounts = {"a": (7, 2), "b": (50, 1), "c": (9, 0)}
    world.topic.send(
        [
            sent(world.contract, event_id=name, amount=amount, divisor=divisor)
            for name, (amount, divisor) in amounts.items()
        ]
    )
    world.run_to_the_end()
    line = {"event_id": "d", "at": NOON.isoformat(), "sensor": "s1", "amount": 5}
    file = tmp_path / "more.jsonl"
    file.write_text(json.dumps(line | {"site": None, "grade": "LOW", "divisor": 5}))
    world.run_batch("more", file)

    assert [
        ("a", 6, {"each": 3, "of": [7, 2]}),
        ("b", 100, {"each": 50, "of": [50, 1]}),
        ("d", 2, {"each": 1, "of": [5, 5]}),
    ] == world.fetch("SELECT event_id, doubled, shape FROM readings ORDER BY 1")
    assert ["s1-low"] * 3 == [
        kind for (kind,) in world.fetch("SELECT kind FROM totals")
    ]
    assert 54 == world.value("SELECT max(total) FROM totals")
    assert [(50, 1), (50, 3)] == world.fetch(
        "SELECT more, less FROM pairs ORDER BY less"
    )
    world.assert_verified()

    columns, rows, summary = noted(world, _STAGES)
    assert ["each", "kind", "shape"] == [
        name for name in columns if name in ("each", "kind", "shape", "doubled")
    ]
    assert [["a", 3, "s1-low", "alive", None], ["b", 50, "s1-low", "alive", None]] == (
        rows[:2]
    )
    assert rows[2][:3] == ["c", None, "s1-low"]
    assert "The computed column each, amount div divisor, has no value" in rows[2][4]
    assert 2 == summary["readings"]["equal"], summary
    assert 0 == summary["readings"]["different"], summary
