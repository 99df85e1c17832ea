"""The ready pipeline for CSV files: the commands and rows that the docs show."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.command import run_command
from integration_tests.harness.shown_rows import show_rows
from services.embedded.state_directory import (
    ROOT,
    STATE_DIRECTORY_VARIABLE,
    share_fetched,
)
from services.endpoints import KAFKA_VARIABLE
from sinks.postgres.audit import verify
from sinks.settings import HOME_DSN_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_ORDERS = """\
order_id,customer_id,amount_cents,currency,ordered_at
o1,7,1250,EUR,2024-05-01T10:00:00Z
o2,8,990,EUR,2024-05-01T10:05:00Z
o3,7,0,EUR,2024-05-01T10:06:00Z
o4,9,many,EUR,2024-05-01T10:07:00Z
o1,7,1250,EUR,2024-05-01T10:00:00Z
o5,9,40,GBP,2024-05-01T12:09:00+02:00
"""
_SAID = (
    "Run orders-1 is published: 6 read: 3 committed, 1 duplicate, 2 dead, 0 late, "
    "0 expired, 0 filtered."
)
_ROWS = "SELECT order_id, amount_cents, kafka_topic, kafka_offset FROM imported_orders"
_DEAD = (
    "SELECT kafka_offset AS line, reason, detail, convert_from(payload, 'UTF8') AS row "
    "FROM tallyweir.dead_letter"
)


def test_the_documented_import_gives_the_documented_rows(
    tmp_path: Path, empty_dsn: str
) -> None:
    """From the template to rows and dead letters; Kafka is not there at all."""
    state = tmp_path / "state"
    state.mkdir()
    share_fetched(state)
    variables = {
        KAFKA_VARIABLE: "localhost:1",
        HOME_DSN_VARIABLE: empty_dsn,
        STATE_DIRECTORY_VARIABLE: str(state),
    }
    (tmp_path / "orders.csv").write_text(_ORDERS)
    commands = (
        "templates init csv-import --directory pipelines",
        "batch pipelines/csv-import.yaml --input orders.csv --run orders-1",
    )

    def run(command: str) -> str:
        return run_command(*command.split(), variables=variables, directory=tmp_path)

    for command in commands:
        said = run(command)
    documented = (ROOT / "docs" / "batch.md").read_text()
    assert _SAID in said
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        assert not verify(connection, "csv-import").failed
        shown = [
            *(f"$ tallyweir {command}\n" for command in commands),
            f"{_SAID}\n",
            _ORDERS,
            *(show_rows(connection, query) for query in (_ROWS, _DEAD)),
        ]
    for part in shown:
        assert part in documented
    told = run("why csv-import o3")
    assert "batch:orders-1[0] offset 4 (orders.csv) became a dead letter" in told
    assert "payload: o3,7,0,EUR,2024-05-01T10:06:00Z" in told
    again = run(commands[1])
    assert "Run orders-1 was published before; nothing was changed.\n" in again
