"""The ready pipeline for CSV files: the commands and rows that the docs show."""

from __future__ import annotations

import csv
import datetime as dt
import itertools
import signal
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.command import run_command
from integration_tests.harness.faulty_driver import FAULT_VARIABLE
from integration_tests.harness.shown_rows import show_rows
from integration_tests.harness.watched_driver import WatchedDriver
from tallyweir.services.dev.chaos.templates.results import (
    Results,
    compare_results,
    read_results,
)
from tallyweir.services.local.datasets.made_up import DATASETS
from tallyweir.services.local.embedded.state_directory import (
    ROOT,
    STATE_DIRECTORY_VARIABLE,
    share_fetched,
)
from tallyweir.services.local.templates.template import read_template
from tallyweir.services.process.endpoints import KAFKA_VARIABLE
from tallyweir.sinks.faultpoints import FaultPoint
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

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
_CORRECTIONS = """\
order_id,customer_id,amount_cents,currency,ordered_at
o1,7,1350,EUR,2024-05-01T10:00:00Z
o2,8,990,EUR,2024-05-01T10:05:00Z
o6,8,500,EUR,2024-05-01T10:20:00Z
o5,9,45,GBP,2024-05-01T12:09:00+02:00
o5,9,46,GBP,2024-05-01T12:09:00+02:00
"""
_SAID_OF_CORRECTIONS = (
    "Run orders-2 is published: 5 read: 3 committed, 1 duplicate, 1 dead, 0 late, "
    "0 expired, 0 filtered."
)
_REPLACED = (
    "SELECT event_id, kafka_topic, kafka_offset, sequence FROM tallyweir.replaced_row"
)
_DEAD = (
    "SELECT kafka_offset AS line, reason, detail, convert_from(payload, 'UTF8') AS row "
    "FROM tallyweir.dead_letter"
)


@pytest.mark.long
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

    (tmp_path / "corrections.csv").write_text(_CORRECTIONS)
    upsert = (
        "batch pipelines/csv-import.yaml --input corrections.csv --run orders-2 "
        "--disposition upsert"
    )
    assert _SAID_OF_CORRECTIONS in run(upsert)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        assert not verify(connection, "csv-import").failed
        shown = [
            f"$ tallyweir {upsert}\n{_SAID_OF_CORRECTIONS}\n",
            _CORRECTIONS,
            *(show_rows(connection, query) for query in (_ROWS, _REPLACED)),
        ]
    for part in shown:
        assert part in documented
    told = run("why csv-import o1")
    assert "batch:orders-1[0] offset 2 (orders.csv) was committed" in told
    assert "its row was replaced by run orders-2 in batch 2" in told
    assert "batch:orders-2[0] offset 2 (corrections.csv) was committed" in told

    # A file of which no row is an order, now and when it was done before.
    (tmp_path / "orders.csv").write_text("\n".join(_ORDERS.splitlines()[:4:3]) + "\n")
    for said in ("1 read: 0 committed, 0 duplicate, 1 dead", "published before"):
        dead = commands[1].replace("orders-1", "orders-3").split()
        told = run_command(*dead, variables=variables, directory=tmp_path, code=1)
        assert said in told


#: What a run of one database passes, up to the point at which it is published.
_POINTS = (
    FaultPoint.PLANNED,
    FaultPoint.ROWS_STAGED,
    FaultPoint.VOTED,
    FaultPoint.DECISION_COMMITTED,
)


@pytest.mark.long
def test_an_import_killed_at_every_point_equals_an_undisturbed_one(
    tmp_path: Path, empty_dsn: str, billing_dsn: str
) -> None:
    """The same command again is all that it takes; 500 orders, some twice or broken."""
    file = tmp_path / "orders.csv"
    _write_orders(file)
    for point in _POINTS:
        fault = f"after:{point.value}:1:SIGKILL"
        with _import(file, empty_dsn, tmp_path, fault=fault) as run:
            assert run.wait() == -signal.SIGKILL, run.text
    for dsn in (empty_dsn, billing_dsn):
        with _import(file, dsn, tmp_path) as run:
            assert run.wait() == 0, run.text
    undisturbed, disturbed = (_verified(dsn) for dsn in (billing_dsn, empty_dsn))
    counts = {table: len(rows) for table, rows in undisturbed.items() if rows}
    assert counts == {
        "imported_orders": 490,
        "tallyweir.dead_letter": 10,
        "tallyweir.duplicate_event": 50,
        "tallyweir.partition_progress": 1,
        "tallyweir.watermark": 1,
    }
    assert compare_results(undisturbed, disturbed) == []


@pytest.mark.long
def test_an_upsert_killed_at_every_point_equals_an_undisturbed_one(
    tmp_path: Path, empty_dsn: str, billing_dsn: str
) -> None:
    """Every third of 490 orders is corrected, and 20 are new."""
    orders, corrections = tmp_path / "orders.csv", tmp_path / "corrections.csv"
    _write_orders(orders)
    _write_corrections(orders, corrections)
    for dsn in (empty_dsn, billing_dsn):
        with _import(orders, dsn, tmp_path) as run:
            assert run.wait() == 0, run.text
    # The last but one is when the rows have gone and come, and nothing is decided.
    faults = [f"after:{point.value}" for point in _POINTS]
    faults.insert(-1, f"before:{FaultPoint.DECISION_COMMITTED.value}")
    for fault in faults:
        with _upsert(
            corrections, empty_dsn, tmp_path, fault=f"{fault}:1:SIGKILL"
        ) as run:
            assert run.wait() == -signal.SIGKILL, run.text
    for dsn in (empty_dsn, billing_dsn):
        with _upsert(corrections, dsn, tmp_path) as run:
            assert run.wait() == 0, run.text
    undisturbed, disturbed = (_verified(dsn) for dsn in (billing_dsn, empty_dsn))
    counts = {table: len(rows) for table, rows in undisturbed.items() if rows}
    assert counts == {
        "imported_orders": 510,
        "tallyweir.dead_letter": 10,
        "tallyweir.duplicate_event": 50 + 327,
        "tallyweir.replaced_row": 163,
        "tallyweir.partition_progress": 2,
        "tallyweir.watermark": 1,
    }
    assert compare_results(undisturbed, disturbed) == []


def _verified(dsn: str) -> Results:
    """Read what an import has left, once its proof has passed."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert not verify(connection, "csv-import").failed
        return read_results(connection, "csv-import")


def _write_corrections(orders: Path, file: Path) -> None:
    """Every third good order gets a cent more; the others come again, with new ones."""
    with orders.open(newline="") as text:
        header, *rows = csv.reader(text)
    good = {row[0]: row for row in rows if row[2] != "0"}
    corrected = [
        [*row[:2], str(int(row[2]) + (number % 3 == 1)), *row[3:]]
        for number, row in enumerate(good.values())
    ]
    new = [[f"new-{row[0]}", *row[1:]] for row in list(good.values())[:20]]
    with file.open("w", newline="") as text:
        csv.writer(text).writerows([header, *corrected, *new])


def _write_orders(file: Path) -> None:
    """Every tenth order comes twice, every fiftieth has no amount."""
    noon = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    orders = itertools.islice(DATASETS["orders"].events(7, lambda: noon), 500)
    with file.open("w", newline="") as text:
        rows = csv.writer(text)
        rows.writerow(
            ("order_id", "customer_id", "amount_cents", "currency", "ordered_at")
        )
        for number, order in enumerate(orders):
            if number % 50 == 1:
                order["amount_cents"] = 0
            rows.writerows([order.values()] * (2 if number % 10 == 0 else 1))


def _upsert(
    file: Path, dsn: str, directory: Path, *, fault: str | None = None
) -> WatchedDriver:
    return _import(file, dsn, directory, "--disposition=upsert", fault=fault)


def _import(
    file: Path, dsn: str, directory: Path, *options: str, fault: str | None = None
) -> WatchedDriver:
    module = (
        "integration_tests.harness.faulty_driver"
        if fault
        else "tallyweir.spark_jobs.batch"
    )
    return WatchedDriver(
        read_template("csv-import").file,
        kafka_bootstrap="localhost:1",
        home_dsn=dsn,
        state_directory=directory / "state",
        arguments=["--input", str(file), "--run", file.stem, *options],
        environment={FAULT_VARIABLE: fault} if fault else {},
        module=module,
    )
