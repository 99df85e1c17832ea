"""An event that only windows have is found again, with the row that it is in."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow
from typer.testing import CliRunner

from integration_tests.harness.readings import (
    NOON,
    READING,
    Sent,
    reading,
    write_contract,
)
from integration_tests.harness.written_topic import WrittenTopic
from integration_tests.ledger_scenario import BUCKET_SECONDS, PIPELINE
from tallyweir.schemas.codec import encode
from tallyweir.schemas.event_contracts import load_event_contracts
from tallyweir.services.cli.app import build_app
from tallyweir.services.operate.event_search import WantedEvent, find_event
from tallyweir.services.operate.id_fingerprints import fingerprints_of
from tallyweir.services.process.endpoints import KAFKA_VARIABLE
from tallyweir.sinks.postgres.audit import find_window_rows, read_batch_ranges
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

#: Of the second reading.
_TOLD = (
    "It is in the row of by_hour with window_start 2024-05-01 12:00:00+00:00, "
    "window_end 2024-05-01 13:00:00+00:00, sensor 's2'."
)
#: What a driver would have written of one batch of three records.
_LEDGER = """
INSERT INTO tallyweir.pipeline
    (pipeline, definition, definition_hash, shards, bucket_seconds, last_sequence)
VALUES (%(pipeline)s, %(definition)s, 'h', 2, %(bucket)s, 1);
INSERT INTO tallyweir.epoch_claim (pipeline, epoch, host, process_id)
VALUES (%(pipeline)s, 1, 'test', 1);
INSERT INTO tallyweir.batch (pipeline, sequence, epoch, spark_batch_id, checksum,
    planned_at, staged_at, published_at)
VALUES (%(pipeline)s, 1, 1, 0, 0, now(), now(), now());
INSERT INTO tallyweir.batch_partition
VALUES (%(pipeline)s, 1, %(topic)s, 0, 0, 3, 3, 3, 0, 0, 0, 0, 0);
INSERT INTO tallyweir.partition_progress
    (pipeline, topic, partition, topic_id, next_offset)
VALUES (%(pipeline)s, %(topic)s, 0, 'id', 3);
INSERT INTO tallyweir.batch_output
    (pipeline, sequence, output_table, kind, events, rows, late, revised)
VALUES (%(pipeline)s, 1, 'by_hour', 'window', 3, 2, 0, 0);
CREATE TABLE tallyweir.seen_id_run_test
PARTITION OF tallyweir.seen_id_run FOR VALUES IN ('departures');
CREATE TABLE public.by_hour (
    window_start timestamptz, window_end timestamptz, sensor text, events bigint
)"""


@pytest.fixture
def pipeline_file(
    tmp_path: Path,
    kafka_bootstrap: str,
    topic: str,
    connection: psycopg.Connection[TupleRow],
) -> Path:
    """A pipeline of windows that has read three readings of two sensors."""
    contract = write_contract(tmp_path / "reading.v1.avsc", READING)
    log = WrittenTopic(kafka_bootstrap, topic)
    log.create(1)
    log.send(
        [
            Sent(
                value=encode(contract, reading(event_id=name, sensor=sensor)),
                key=f"k-{name}".encode(),
                headers=[("kind", b"old"), ("kind", f"h-{name}".encode())],
            )
            for name, sensor in (("r1", "s1"), ("r2", "s2"), ("r3", "s1"))
        ]
    )
    definition = {
        "name": PIPELINE,
        "source": {
            "topic": topic,
            "schema": "reading.v1.avsc",
            "event_id": {"field": "event_id"},
            "event_time": "at",
        },
        "deduplicate": {"horizon": "7 days"},
        "outputs": [{"kind": "window", "table": "by_hour", "by": ["sensor"]}],
    }
    values = {
        "pipeline": PIPELINE,
        "definition": json.dumps(definition),
        "bucket": BUCKET_SECONDS,
        "topic": topic,
    }
    for statement in _LEDGER.split(";"):
        connection.execute(statement.encode(), values)
    for hours in (-1, 0):
        for sensor in ("s1", "s2"):
            start = NOON + timedelta(hours=hours)
            connection.execute(
                "INSERT INTO public.by_hour VALUES (%s, %s, %s, 1)",
                (start, start + timedelta(hours=1), sensor),
            )
    _remember(connection, "r2")
    connection.commit()
    file = tmp_path / "p.yaml"
    file.write_text(f"pipeline: {PIPELINE}\n")
    return file


def _remember(connection: psycopg.Connection[TupleRow], event_id: str) -> None:
    row = connection.execute(
        "SELECT fingerprint_key FROM tallyweir.installation"
    ).fetchone()
    assert row is not None
    first, *_ = fingerprints_of(row[0], event_id, None)
    bucket = int(NOON.timestamp()) // BUCKET_SECONDS * BUCKET_SECONDS
    connection.execute(
        "INSERT INTO tallyweir.seen_id_run (pipeline, bucket, sequence, ids, first, "
        "last, fingerprints) VALUES (%s, %s, 1, 1, %s, %s, %s)",
        (PIPELINE, bucket, first, first, first),
    )


def test_the_window_row_of_an_event_is_told(
    pipeline_file: Path,
    home_dsn: str,
    kafka_bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event is read again, for its time and its group."""
    contracts = load_event_contracts(["reading.v1.avsc"], pipeline_file)
    with psycopg.connect(home_dsn, options="-c search_path=public") as home:
        ranges = read_batch_ranges(home, PIPELINE, 1)

        def find(event_id: str) -> dict[str, object] | None:
            return find_event(
                kafka_bootstrap,
                ranges,
                WantedEvent(
                    event_id=event_id, contracts=contracts, id_columns=("event_id",)
                ),
            )

        assert find("r9") is None
        event = find("r2")
        assert event is not None
        (row,) = find_window_rows(home, PIPELINE, event)
        assert (row.table, row.start, row.by) == ("by_hour", NOON, {"sensor": "s2"})
        assert row.is_sure
        # Where the group is computed, it is one of those of that time.
        either = find_window_rows(home, PIPELINE, {"at": event["at"]})
        assert [False, False] == [one.is_sure for one in either]
    monkeypatch.setenv(HOME_DSN_VARIABLE, home_dsn)
    monkeypatch.setenv(KAFKA_VARIABLE, kafka_bootstrap)
    assert _TOLD in _why(pipeline_file, "r2")


@pytest.mark.parametrize(
    ("event_id", "key", "written"),
    [
        ({"header": "kind"}, None, "h-r2"),
        ({"field": "key"}, {"format": "text"}, "k-r2"),
        ({"field": "kafka_key"}, None, b"k-r2".hex()),
        (
            {"parts": [{"field": "event_id"}, {"header": "kind"}, {"field": "amount"}]},
            None,
            '["r2", "h-r2", 1]',
        ),
        ({"position": True}, None, "{topic}[0]@1"),
    ],
)
def test_wherever_the_id_is_the_window_row_is_told(  # noqa: PLR0913, PLR0917 - fixtures
    pipeline_file: Path,
    home_dsn: str,
    kafka_bootstrap: str,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    event_id: dict[str, object],
    key: dict[str, object] | None,
    written: str,
) -> None:
    """In a header, the key, several values, or where Kafka has the record."""
    written = written.replace("{topic}", topic)
    source = {"event_id": event_id} | ({} if key is None else {"key": key})
    with psycopg.connect(home_dsn) as home:
        home.execute(
            "UPDATE tallyweir.pipeline SET definition = jsonb_set(definition::jsonb, "
            "'{source}', definition::jsonb -> 'source' || %s::jsonb)",
            (json.dumps(source),),
        )
        if "position" not in event_id:
            home.execute("TRUNCATE tallyweir.seen_id_run")
            _remember(home, written.replace(", ", ","))
    monkeypatch.setenv(HOME_DSN_VARIABLE, home_dsn)
    monkeypatch.setenv(KAFKA_VARIABLE, kafka_bootstrap)
    told = _why(pipeline_file, written)
    assert _TOLD in told
    assert ("has read it" in told) == ("position" in event_id)


def _why(pipeline_file: Path, event_id: str) -> str:
    said = CliRunner().invoke(build_app(), ["why", str(pipeline_file), event_id])
    return said.output.replace("\n", " ")
