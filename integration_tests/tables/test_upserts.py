"""Batch runs that upsert: an event's rows make place for those of its correction."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from integration_tests.harness.driver_world import SOURCE, DriverWorld
from integration_tests.harness.readings import sent
from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.sinks.faultpoints import FaultPoint
from tallyweir.sinks.postgres.audit import explain, narrate, verify

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_PIPELINE = (
    SOURCE
    + """
    validate:
      NEGATIVE_AMOUNT: "amount >= 0"
    outputs:
      - append: {{table: readings}}
      - append: {{table: large, columns: [event_id, amount], where: "amount > 50"}}
"""
)
_FILTERING = _PIPELINE.replace(
    "    outputs:", '    filter: "amount <> 13"\n    outputs:'
)


def _json(event_id: str, amount: int, **fields: object) -> str:
    row: dict[str, Any] = {
        "event_id": event_id,
        "at": "2024-05-01T12:00:00Z",
        "sensor": "s1",
        "amount": amount,
        "site": None,
        "grade": "LOW",
        "divisor": 1,
    }
    return json.dumps(row | fields)


#: Beside what it corrects: a repeat, a new event, what is said twice, a broken rule.
_FIX = (
    _json("up", 80),
    _json("same", 2),
    _json("down", 5, at="2024-05-01T10:00:00Z"),
    _json("new", 6),
    _json("more", 71),
    _json("more", 72),
    _json("more", 71),
    _json("dead", -1),
    _json("new", 7),
)


def _write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def _amounts(world: DriverWorld, table: str) -> dict[str, int]:
    return dict(world.fetch(f"SELECT event_id, amount FROM {table}"))


def _replaced(world: DriverWorld) -> list[tuple[str, str, int]]:
    return world.fetch(
        "SELECT event_id, output_table, sequence FROM tallyweir.replaced_row "
        "ORDER BY sequence, event_id, output_table"
    )


def _violations(world: DriverWorld) -> list[str]:
    with psycopg.connect(world.home_dsn) as connection:
        receipt = verify(connection, "readings")
    return [line for check in receipt.failed for line in check.violations]


def _why(world: DriverWorld, event_id: str) -> str:
    def probe(key: bytes, text: str) -> tuple[bytes, ...]:
        return fingerprints_of(key, text, None)

    with psycopg.connect(world.home_dsn) as connection:
        explanation = explain(connection, "readings", event_id, probe)
    return "\n".join(narrate(explanation, lambda _payload: None))


@pytest.mark.long
def test_corrections_take_the_place_of_what_a_stream_has_brought(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Killed ahead of the COMMIT and behind it; then the stream sends all copies again.

    A row moves to the output whose condition its event meets now. The newest payload
    is the one that counts; a further run may take it back.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    contract = world.contract
    amounts = {"up": 1, "down": 60, "same": 2, "more": 70, "dead": 3}
    world.topic.send(
        [sent(contract, event_id=name, amount=n) for name, n in amounts.items()]
    )
    world.run_to_the_end()
    before = world.fetch("SELECT * FROM readings"), world.fetch("SELECT * FROM large")
    fix = _write(tmp_path / "fix.jsonl", *_FIX)
    point = FaultPoint.DECISION_COMMITTED.value
    _kill(world, fix, f"before:{point}")
    found = world.fetch("SELECT * FROM readings"), world.fetch("SELECT * FROM large")
    assert (before, []) == (found, _replaced(world))
    _kill(world, fix, f"after:{point}")
    done = world.run_batch("fix", fix, disposition="upsert")
    assert "run was done before" == done["event"]

    corrected = {"up": 80, "down": 5, "same": 2, "more": 71, "dead": 3, "new": 6}
    assert corrected == _amounts(world, "readings")
    assert {"up": 80, "more": 71} == _amounts(world, "large")
    sequence = world.value("SELECT last_sequence FROM tallyweir.pipeline")
    assert [
        ("down", "large", sequence),
        ("down", "readings", sequence),
        ("more", "large", sequence),
        ("more", "readings", sequence),
        ("up", "readings", sequence),
    ] == _replaced(world)
    assert [(4, 2, 3)] == world.fetch(
        "SELECT committed, duplicate, dead FROM tallyweir.batch_partition "
        "WHERE topic = 'batch:fix'"
    )
    world.assert_verified()

    _send_every_copy_again(world, amounts)
    assert corrected | {"later": 90} == _amounts(world, "readings")
    world.assert_verified()

    again = _write(tmp_path / "again.jsonl", _json("up", 1), _json("down", 61))
    world.run_batch("again", again, disposition="upsert")
    assert corrected | {"later": 90, "up": 1, "down": 61} == _amounts(world, "readings")
    assert {"more": 71, "later": 90, "down": 61} == _amounts(world, "large")
    world.assert_verified()
    _assert_told(world)
    _assert_forgeries_are_found(world)


def _kill(world: DriverWorld, fix: Path, point: str) -> None:
    fault = f"{point}:1:SIGKILL"
    with world.batch("fix", fix, disposition="upsert", fault=fault) as run:
        assert run.wait() == -signal.SIGKILL, run.text


def _send_every_copy_again(world: DriverWorld, amounts: dict[str, int]) -> None:
    """Let the stream bring what was corrected, a correction, and a new event."""
    world.topic.send(
        [
            *(
                sent(world.contract, event_id=name, amount=n)
                for name, n in amounts.items()
            ),
            sent(world.contract, event_id="up", amount=80, partition=1),
            sent(world.contract, event_id="later", amount=90, partition=1),
        ]
    )
    world.run_to_the_end()
    conflicts = world.fetch(
        "SELECT event_id FROM tallyweir.dead_letter "
        "WHERE reason = 'ID_CONFLICT' AND kafka_topic = %s ORDER BY 1",
        world.topic.name,
    )
    assert [("down",), ("more",), ("up",)] == conflicts


def _assert_told(world: DriverWorld) -> None:
    told = _why(world, "up").splitlines()
    assert f"at {world.topic.name}[0] offset 0 was committed to readings" in told[0]
    assert "its row was replaced by run fix in batch" in told[0]
    assert "at batch:fix[0] offset 1 (fix.jsonl) was committed to large" in told[1]
    assert "its row was replaced by run again in batch" in told[1]
    (last,) = (line for line in told if "at batch:again[0] offset 1 (" in line)
    assert "(again.jsonl) was committed to readings" in last
    assert "replaced" not in last
    assert "It is remembered again from batch" in told[-2]
    assert told[-1] == (
        "large has no row of the copy at batch:again[0] offset 1: it takes only events "
        "that meet its condition: amount > 50."
    )
    assert "replaced" not in _why(world, "new")


def _assert_forgeries_are_found(world: DriverWorld) -> None:
    """A row that is gone without having been replaced, and one that is there again."""
    world.execute(
        "CREATE TABLE kept AS TABLE readings",
        "CREATE TABLE kept_replaced AS TABLE tallyweir.replaced_row",
    )
    forgeries = {
        "DELETE FROM readings WHERE event_id = 'same'": "the ledger counts 5",
        "DELETE FROM readings WHERE event_id = 'down'": "the table holds 1",
        "INSERT INTO readings SELECT * FROM readings WHERE event_id = 'new'": (
            "is there 2 times"
        ),
        (
            "INSERT INTO readings (event_id, kafka_topic, kafka_partition, "
            "kafka_offset) SELECT event_id, kafka_topic, kafka_partition, kafka_offset "
            "FROM tallyweir.replaced_row WHERE output_table = 'readings' LIMIT 1"
        ): "is replaced by an upsert as well",
        "DELETE FROM tallyweir.replaced_row WHERE event_id = 'down'": (
            "the ledger counts 5"
        ),
        # Of another row: the numbers are the ledger's, the positions are not.
        (
            "UPDATE tallyweir.replaced_row SET kafka_offset = 2 "
            "WHERE event_id = 'more' AND output_table = 'readings'"
        ): "its checksum is",
    }
    for forgery, told in forgeries.items():
        world.execute(forgery)
        assert any(told in line for line in _violations(world)), (forgery, told)
        world.execute(
            "TRUNCATE readings, tallyweir.replaced_row",
            "INSERT INTO readings SELECT * FROM kept",
            "INSERT INTO tallyweir.replaced_row SELECT * FROM kept_replaced",
        )
    world.assert_verified()


@pytest.mark.long
def test_a_correction_that_is_filtered_takes_the_rows_away(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """And can be corrected in its turn; a filtered event of a new ID claims nothing."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_FILTERING)
    first = _write(tmp_path / "first.jsonl", _json("a", 60), _json("b", 1))
    second = _write(
        tmp_path / "second.jsonl", _json("a", 13), _json("a", 2), _json("c", 13)
    )
    third = _write(tmp_path / "third.jsonl", _json("a", 60), _json("c", 4))
    world.run_batch("first", first, disposition="upsert")

    done = world.run_batch("second", second, disposition="upsert")

    assert (0, 2, 1) == (done["committed"], done["filtered"], done["dead"])
    assert {"b": 1} == _amounts(world, "readings")
    assert {} == _amounts(world, "large")
    assert [("a", "large", 2), ("a", "readings", 2)] == _replaced(world)
    assert 1 == world.value("SELECT sum(retracted) FROM tallyweir.batch_run")
    world.assert_verified()

    world.run_batch("third", third, disposition="upsert")

    assert {"a": 60, "b": 1, "c": 4} == _amounts(world, "readings")
    assert {"a": 60} == _amounts(world, "large")
    assert "was filtered in batch 2" in _why(world, "a")
    world.assert_verified()

    # The rows of all batches go, and what was replaced is not missed any more.
    world.run_batch("anew", first, disposition="truncate")
    assert {"a": 60, "b": 1} == _amounts(world, "readings")
    world.assert_verified()
    world.run_batch("again", second, disposition="upsert")
    assert {"b": 1} == _amounts(world, "readings")
    world.assert_verified()


@pytest.mark.long
def test_a_table_of_the_users_own_keeps_what_it_will_not_replace(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Its key holds while a row makes place for the next; a row of others stays.

    A correction that the table refuses is a dead letter, and replaces nothing.
    """
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_PIPELINE)
    world.execute(
        "CREATE TABLE readings (event_id varchar(40) PRIMARY KEY, at timestamptz, "
        "sensor text, amount int CHECK (amount <> 99), site text, grade text, "
        "divisor int, kafka_topic text, kafka_partition int, kafka_offset bigint)",
        "CREATE TABLE large (event_id text, amount int, kafka_topic text, "
        "kafka_partition int, kafka_offset bigint)",
        "INSERT INTO large VALUES ('a', 1, 'elsewhere', 0, 0)",
        "INSERT INTO large VALUES ('a', 2)",
    )
    first = _write(tmp_path / "first.jsonl", _json("a", 60), _json("b", 61))
    second = _write(
        tmp_path / "second.jsonl", _json("a", 99), _json("b", 62), _json("c", 63)
    )
    world.run_batch("first", first)

    done = world.run_batch("second", second, disposition="upsert")

    assert (2, 1) == (done["committed"], done["dead"])
    assert {"a": 60, "b": 62, "c": 63} == _amounts(world, "readings")
    assert [("a", 1), ("a", 2), ("a", 60), ("b", 62), ("c", 63)] == world.fetch(
        "SELECT event_id, amount FROM large ORDER BY 1, 2"
    )
    assert [("a", "REJECTED_BY_POSTGRES")] == world.fetch(
        "SELECT event_id, reason FROM tallyweir.dead_letter"
    )
    world.assert_verified()


def test_a_pipeline_whose_rows_cannot_be_found_again_takes_no_upsert(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """It is told before anything is done; every obstacle has a unit test."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(
        _PIPELINE.replace("columns: [event_id, amount]", "columns: [amount]")
    )
    file = _write(tmp_path / "rows.jsonl", _json("a", 60))
    with world.batch("fix", file, disposition="upsert") as run:
        assert run.wait() == 78
    assert "RUN_CANNOT_UPSERT" in run.text
    assert "leaves the ID event_id out of the columns of large" in run.text
    assert world.value("SELECT count(*) FROM tallyweir.pipeline") == 0
