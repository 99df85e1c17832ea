"""The rows that docs/joins.md shows are those that its pipeline makes of its events."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

from integration_tests.harness.driver_world import DriverWorld
from integration_tests.harness.readings import NOON, Sent, write_contract
from integration_tests.harness.written_topic import WrittenTopic
from tallyweir.schemas.codec import encode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PAGE = Path(__file__).parents[2] / "docs" / "joins.md"
_TIME = {"type": "long", "logicalType": "timestamp-millis"}
#: Each topic with its contract, the columns of the page in it, and what is its own.
_CONTRACTS: dict[str, tuple[str, dict[str, object]]] = {
    "orders": ("order_placed", {"name": "amount_cents", "type": "long"}),
    "payments": ("payment_received", {"name": "method", "type": "string"}),
}


def _tables() -> list[list[dict[str, str]]]:
    """Return the tables of the page's example, events first, as rows by column."""
    example = _PAGE.read_text().split("## What makes a pair")[0]
    tables = []
    for found in re.findall(r"(?:^\|.*\n)+", example, re.MULTILINE):
        head, _, *rows = [
            [cell.strip() for cell in line.strip("|\n").split("|")]
            for line in found.splitlines()
        ]
        tables.append([dict(zip(head, row, strict=True)) for row in rows])
    return tables


def _at(written: str) -> dt.datetime:
    hour, minute = map(int, written.split(":"))
    return NOON.replace(hour=hour, minute=minute)


@pytest.mark.long
def test_the_page_shows_the_rows_that_its_events_make(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Of its own pipeline, but for the names of the topics."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn, partitions=1)
    events, expected = _tables()
    (text,) = re.findall(r"```yaml\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    for number, (topic, (name, own)) in enumerate(_CONTRACTS.items()):
        contract = write_contract(
            tmp_path / f"{name}.v1.avsc",
            {
                "type": "record",
                "name": name,
                "fields": [
                    {"name": "event_id", "type": "string"},
                    {"name": "order_id", "type": "string"},
                    {"name": "at", "type": _TIME},
                    own,
                ],
            },
        )
        log = WrittenTopic(kafka_bootstrap, f"{world.topic.name}-{number}")
        log.create(1)
        text = re.sub(rf"(?<![-\w]){topic}\b", log.name, text)
        records = []
        for row in events:
            if row["topic"] == topic:
                value = row[str(own["name"])]
                record: dict[str, object] = {
                    "event_id": f"{topic} {row['order_id']}",
                    "order_id": row["order_id"],
                    "at": _at(row["at"]),
                    str(own["name"]): int(value) if value.isdigit() else value,
                }
                records.append(Sent(value=encode(contract, record)))
        log.send(records)
    world.pipeline_file.write_text(text)
    world.run_to_the_end()
    found = world.fetch(
        "SELECT order_id, to_char(ordered_at AT TIME ZONE 'UTC', 'HH24:MI') AS "
        "ordered_at, amount_cents, to_char(paid_at AT TIME ZONE 'UTC', 'HH24:MI'), "
        "method FROM paid_orders ORDER BY order_id"
    )
    shown = [tuple("" if cell is None else str(cell) for cell in row) for row in found]
    assert [tuple(row.values()) for row in expected] == shown
    waiting = "SELECT key::json ->> 0 FROM tallyweir.keyed_state ORDER BY 1"
    assert ["o3", "o4"] == [key for (key,) in world.fetch(waiting)]
    world.assert_verified("paid-orders")
