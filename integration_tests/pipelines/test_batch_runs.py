"""Batch runs over files: the stream's tables, fates and ledger, once by their name."""

from __future__ import annotations

import copy
import json
import signal
from pathlib import Path
from typing import Any

import fastavro
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.readings import NOON, READING, reading, sent
from tallyweir.sinks.faultpoints import FaultPoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_PIPELINE = """
    pipeline: readings
    source:
      topic: {topic}
      schema: reading.v1.avsc
      event_id: event_id
      event_time: at
      watermark_delay: 1 hour
    deduplicate: {{horizon: 7 days}}
    validate:
      NEGATIVE_AMOUNT: "amount >= 0"
    outputs:
      - append: {{table: readings}}
      - window:
          table: readings_by_hour
          fixed: 1 hour
          aggregate: {{readings: count(*), total: sum(amount)}}
"""

#: What may pass by itself.
_AGAIN = 75

_HEADER = "event_id,at,sensor,amount,grade,divisor"


def _row(event_id: str, **cells: object) -> str:
    row = {"at": "2024-05-01T12:00:00Z", "sensor": "s1", "amount": 1} | cells
    return f"{event_id},{row['at']},{row['sensor']},{row['amount']},LOW,1"


def _json(event_id: str, **fields: object) -> str:
    row: dict[str, Any] = {
        "event_id": event_id,
        "at": "2024-05-01T12:00:00Z",
        "sensor": "s1",
        "amount": 1,
        "site": None,
        "grade": "LOW",
        "divisor": 1,
    }
    return json.dumps(row | fields)


def _write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def _fates_by_input(world: DriverWorld) -> dict[tuple[str, int], str]:
    """What became of each row, by the name of its file and the number of its line."""
    names = {
        f"batch:{run}": name
        for run, name in world.fetch(
            "SELECT run || '/' || partition, name FROM tallyweir.batch_run_input"
        )
    }
    tables = {
        "readings": "'committed'",
        "tallyweir.dead_letter": "reason",
        "tallyweir.duplicate_event": "'duplicate'",
        "tallyweir.expired_event": "'expired'",
    }
    return {
        (names[f"{topic}/{partition}"], line): fate
        for table, column in tables.items()
        for topic, partition, line, fate in world.fetch(
            f"SELECT kafka_topic, kafka_partition, kafka_offset, {column} FROM {table}"
        )
        if topic.startswith("batch:")
    }


def test_every_row_meets_its_fate_once_however_often_the_run_is_started(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Killed between staging and publish, and once more behind the COMMIT.

    Then again with the same input, which changes nothing, and with other input.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    csv = _write(
        tmp_path / "may.csv",
        [
            _HEADER,
            _row("a"),
            _row("b", sensor='"two\nlines"'),
            "",
            _row("c", amount="many"),
            _row("d", amount=-1),
            _row("a"),
            "e,2024",
            _row("f", at="2024-05-01T13:00:00Z"),
        ],
    )
    lines = _write(
        tmp_path / "june.jsonl",
        [_json("g"), "{", _json("a"), _json("a", amount=2), _json("h", other=1)],
    )
    with lines.open("ab") as file:
        file.write(b'{"event_id": "\xff"}\n')
    expected = {
        ("may.csv", 2): "committed",
        ("may.csv", 3): "committed",
        ("may.csv", 6): "ROW_MISFIT",
        ("may.csv", 7): "NEGATIVE_AMOUNT",
        ("may.csv", 8): "duplicate",
        ("may.csv", 9): "ROW_MISFIT",
        ("may.csv", 10): "committed",
        ("june.jsonl", 1): "committed",
        ("june.jsonl", 2): "ROW_MISFIT",
        ("june.jsonl", 3): "duplicate",
        ("june.jsonl", 4): "ID_CONFLICT",
        ("june.jsonl", 5): "ROW_MISFIT",
        ("june.jsonl", 6): "ROW_MISFIT",
    }

    staged = f"after:{FaultPoint.VOTED.value}:1:SIGKILL"
    with world.batch("q2", csv, lines, fault=staged) as run:
        assert run.wait() == -signal.SIGKILL, run.text
    assert [] == world.ledger()
    decided = f"after:{FaultPoint.DECISION_COMMITTED.value}:1:SIGKILL"
    with world.batch("q2", csv, lines, fault=decided) as run:
        assert run.wait() == -signal.SIGKILL, run.text
    assert expected == _fates_by_input(world)
    world.assert_verified()

    assert "run was done before" == world.run_batch("q2", csv, lines)["event"]
    assert 1 == len(world.ledger())
    with world.batch("q2", csv) as run:
        assert run.wait() == 78
    assert "RUN_NAME_TAKEN" in run.text
    assert expected == _fates_by_input(world)
    _assert_dead_letters_hold_the_lines(world, csv, lines)
    assert [(12, 3, False), (13, 1, False)] == world.fetch(
        "SELECT extract(hour FROM window_start)::int, readings, final "
        "FROM readings_by_hour ORDER BY 1"
    )
    # No stream brings events any more, so the newest of the run moves the watermark.
    assert NOON == world.value("SELECT watermark FROM tallyweir.pipeline")


def _assert_dead_letters_hold_the_lines(world: DriverWorld, *files: Path) -> None:
    for partition, line, payload, detail in world.fetch(
        "SELECT kafka_partition, kafka_offset, payload, detail "
        "FROM tallyweir.dead_letter"
    ):
        assert payload == files[partition].read_bytes().split(b"\n")[line - 1]
        assert detail


@pytest.mark.long
def test_a_run_whose_jvm_is_killed_says_so_and_the_next_try_does_it(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Nothing of it is published, and the error is one that a person understands."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    csv = _write(tmp_path / "may.csv", [_HEADER, _row("a"), _row("b")])

    with world.batch("q2", csv) as run:
        run.wait_for("run planned")
        run.kill_the_jvm()
        assert run.wait() == _AGAIN, run.text

    assert "SPARK_ENDED" in run.lines, run.text
    assert [] == world.ledger()
    world.run_batch("q2", csv)
    world.assert_verified()
    assert 2 == world.value("SELECT count(*) FROM readings")


@pytest.mark.long
def test_every_form_of_file_gives_the_same_rows(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """CSV, JSON lines, Parquet and Avro; a dead letter names the row of its file."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    rows = {
        form: [
            reading(event_id=f"{form}{number}", amount=number) for number in (-1, 1, 2)
        ]
        for form in ("parquet", "avro")
    }
    table = pa.Table.from_pylist(rows["parquet"])
    pq.write_table(table, tmp_path / "r.parquet", row_group_size=2)
    with (tmp_path / "r.avro").open("wb") as file:
        fastavro.writer(file, READING, rows["avro"])
    csv = [_row(f"csv{number}", amount=number) for number in (-1, 1, 2)]
    lines = [_json(f"jsonl{number}", amount=number) for number in (-1, 1, 2)]
    _write(tmp_path / "r.csv", [_HEADER, *csv])
    _write(tmp_path / "r.jsonl", lines)

    forms = ("csv", "jsonl", "parquet", "avro")
    done = world.run_batch("forms", *(tmp_path / f"r.{form}" for form in forms))

    assert (12, 8, 4) == (done["read"], done["committed"], done["dead"])
    expected = [
        (f"{form}{amount}", NOON, "s1", amount, None, "LOW", 1)
        for form in forms
        for amount in (1, 2)
    ]
    assert sorted(expected) == world.fetch(
        "SELECT event_id, at, sensor, amount, site, grade, divisor "
        "FROM readings ORDER BY event_id"
    )
    fates = _fates_by_input(world)
    dead = {place for place, fate in fates.items() if fate == "NEGATIVE_AMOUNT"}
    assert {("r.csv", 2), ("r.jsonl", 1), ("r.parquet", 1), ("r.avro", 1)} == dead
    assert fates["r.parquet", 3] == "committed"
    world.assert_verified()


@pytest.mark.long
def test_a_run_that_truncates_takes_the_place_of_all_before_it(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """The same IDs count anew, older events are not late, and readers see no gap."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    first = _write(
        tmp_path / "first.jsonl",
        [_json("a"), _json("b"), _json("c", at="2024-05-09T12:00:00Z"), "{"],
    )
    second = _write(tmp_path / "second.jsonl", [_json("b", amount=5), _json("d")])
    world.run_batch("first", first)
    with psycopg.connect(world.home_dsn) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        before = reader.execute("SELECT event_id FROM readings").fetchall()
        done = world.run_batch("second", second, disposition="truncate")
        # A transaction that began before the run has its snapshot still.
        assert before == reader.execute("SELECT event_id FROM readings").fetchall()
    assert (2, 2, 0) == (done["read"], done["committed"], done["late"])
    assert [("b", 5), ("d", 1)] == world.fetch(
        "SELECT event_id, amount FROM readings ORDER BY 1"
    )
    assert [(2, 6)] == world.fetch("SELECT readings, total::int FROM readings_by_hour")
    assert 1 == world.value("SELECT count(*) FROM tallyweir.dead_letter")
    assert 2 == len(world.ledger())
    world.assert_verified()


@pytest.mark.long
def test_a_range_of_the_topic_is_read_again_without_doubling(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """What the stream had is a duplicate; what its rules refused can be mended."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE.replace("amount >= 0", "amount > 5"))
    world.topic.send(numbered(world, 0, 20))
    world.run_to_the_end()
    assert 14 == world.value("SELECT count(*) FROM readings")
    world.write_pipeline(_PIPELINE)

    topic = world.topic.name
    done = world.run_batch("again", f"{topic}:0:2-10", f"{topic}:1:0-10")

    assert (18, 4, 14) == (done["read"], done["committed"], done["duplicate"])
    assert 18 == world.value("SELECT count(DISTINCT event_id) FROM readings")
    with world.batch("beyond", f"{topic}:0:2-11") as run:
        assert run.wait() == 78
    assert "RANGE_NOT_THERE" in run.text
    with world.batch("all", f"{topic}:0:0-10", disposition="truncate") as run:
        assert run.wait() == 78
    assert "RUN_CANNOT_TRUNCATE" in run.text
    world.run_to_the_end()
    world.assert_verified()


@pytest.mark.long
def test_a_backfill_beside_a_running_stream_doubles_nothing(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """The stream's driver waits for the run, and goes on; IDs are shared both ways."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    world.topic.send(numbered(world, 0, 50))
    # Of the stream's IDs, with the stream's payload; and new ones that it brings later.
    backfill = _write(
        tmp_path / "backfill.jsonl",
        [_json(f"n{number}", amount=number % 100) for number in range(25, 75)],
    )
    with world.driver() as driver:
        world.await_read(50)
        watermark = world.value("SELECT watermark FROM tallyweir.pipeline")
        done = world.run_batch("backfill", backfill)
        assert (50, 25, 25) == (done["read"], done["committed"], done["duplicate"])
        assert watermark == world.value("SELECT watermark FROM tallyweir.pipeline")
        world.topic.send(
            [sent(world.contract, event_id=f"n{n}", amount=n) for n in range(60, 90)]
        )
        world.await_read(50 + 50 + 30)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    assert 90 == world.value("SELECT count(DISTINCT event_id) FROM readings")
    assert 90 == world.value("SELECT count(*) FROM readings")
    assert 90 == world.value("SELECT sum(readings) FROM readings_by_hour")
    world.assert_verified()


@pytest.mark.long
def test_shadow_tables_are_filled_beside_the_stream_and_take_its_place_at_once(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """History from a file, then the topic; the stream that is shown never stops."""
    shown = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    shown.write_pipeline(_PIPELINE.replace("amount >= 0", "amount > 5"))
    shown.topic.send(numbered(shown, 0, 20))
    shadow = copy.copy(shown)
    shadow.pipeline_file = tmp_path / "shadow.yaml"
    shadow.state = tmp_path / "shadow-state"
    shadow.write_pipeline(
        _PIPELINE.replace("pipeline: readings", "pipeline: shadow")
        .replace("table: readings_by_hour", "table: shadow_by_hour")
        .replace("table: readings}", "table: shadow}")
    )
    history = _write(
        tmp_path / "history.jsonl",
        [_json("old", at="2024-04-30T12:00:00Z"), _json("n3", amount=3)],
    )
    with shown.driver() as driver:
        shown.await_read(20)
        shown.execute("CREATE VIEW current_readings AS TABLE readings")
        done = shadow.run_batch("history", history)
        assert (2, 2) == (done["read"], done["committed"])
        shadow.run_to_the_end()
        count = "SELECT count(*) FROM current_readings"
        assert 14 == shown.value(count)
        shown.execute("CREATE OR REPLACE VIEW current_readings AS TABLE shadow")
        assert 21 == shown.value(count)
        shown.topic.send(numbered(shown, 20, 10))
        shown.await_read(20 + 2 + 20 + 10)
        driver.send(signal.SIGTERM)
        assert driver.wait() == 0, driver.text
    shadow.run_to_the_end()

    assert 31 == shown.value(count)
    assert 31 == shown.value("SELECT sum(readings) FROM shadow_by_hour")
    claims = "SELECT count(*) FROM tallyweir.epoch_claim WHERE pipeline = 'readings'"
    assert 1 == shown.value(claims)
    for pipeline in ("readings", "shadow"):
        shown.assert_verified(pipeline)
