"""A pipeline that has only had batch runs: nobody looks for it in Kafka."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import TupleRow
from typer.testing import CliRunner, Result

from integration_tests.harness.relayed_home import read_committed, relay_round
from integration_tests.ledger_scenario import PIPELINE, TOPIC, LedgerScenario
from tallyweir.services.alerts.observer import Observer
from tallyweir.services.alerts.rules_file import read_rules
from tallyweir.services.cli.app import build_app
from tallyweir.services.kafka.pipeline_offsets import read_offsets
from tallyweir.services.monitor.guarded_paths import read_from_kafka
from tallyweir.services.operate.redrive.redriver import redrive
from tallyweir.services.process.endpoints import KAFKA_VARIABLE, Endpoints
from tallyweir.sinks.postgres import audit
from tallyweir.sinks.postgres.steering import RecordPosition, RedriveSelection
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.offsets import TopicPartition
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

_RUN_TOPIC = "batch:orders-1"
_RULES = """\
rules:
  behind: {when: lag_growth, above: 1, channels: []}
  retention: {when: retention_headroom, below: 1 hour, channels: []}
  gone: {when: driver_gone, channels: []}
"""
_POSITIONED = {
    "tallyweir.partition_progress": "topic",
    "tallyweir.batch_partition": "topic",
    "tallyweir.dead_letter": "kafka_topic",
    "tallyweir.late_event": "kafka_topic",
    "tallyweir.expired_event": "kafka_topic",
    "tallyweir.duplicate_event": "kafka_topic",
    "tallyweir.filtered_event": "kafka_topic",
    "departures": "kafka_topic",
}


def _call(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), arguments)


@pytest.fixture
def home(
    connection: psycopg.Connection[TupleRow], scenario: LedgerScenario, home_dsn: str
) -> str:
    """The ledger of a pipeline whose batches were all of runs."""
    assert scenario.sequence == 3
    for table, column in _POSITIONED.items():
        connection.execute(
            sql.SQL("UPDATE {} SET {} = {}").format(
                sql.Identifier(*table.split(".")),
                sql.Identifier(column),
                sql.Literal(_RUN_TOPIC),
            )
        )
    connection.execute("ALTER TABLE departures SET SCHEMA public")
    connection.execute("UPDATE tallyweir.epoch_claim SET run = 'orders-1'")
    connection.commit()
    return home_dsn


def test_its_dead_letters_leave_for_the_topic_that_its_definition_names(
    home: str, kafka_bootstrap: str, topic: str
) -> None:
    """Kafka can have none of a run's name; where each was read is in its headers."""
    with psycopg.connect(home) as connection:
        connection.execute(
            "UPDATE tallyweir.pipeline SET definition = "
            "jsonb_set(definition, '{source,topic}', to_jsonb(%s::text))",
            (topic,),
        )
        letters = connection.execute("SELECT FROM tallyweir.dead_letter").rowcount
    assert [] == relay_round(home, kafka_bootstrap)
    sent = read_committed(kafka_bootstrap, f"{topic}.dlq")
    assert letters == len(sent) > 0
    assert {_RUN_TOPIC} == {m.headers["__connect.errors.topic"] for m in sent}
    assert all(m.headers["ce_id"].startswith("dead_letter/batch:") for m in sent)
    # A pipeline of several topics sends them to the first one's.
    with psycopg.connect(home) as connection:
        connection.execute(
            "UPDATE tallyweir.pipeline SET definition = "
            "jsonb_set(definition, '{source,topic}', %s::jsonb)",
            (f'["{topic}-a", "{topic}-b"]',),
        )
        connection.execute("DELETE FROM tallyweir.relay_cursor")
    assert [] == relay_round(home, kafka_bootstrap)
    assert letters == len(read_committed(kafka_bootstrap, f"{topic}-a.dlq"))


def test_whoever_looks_asks_kafka_for_nothing(
    home: str, kafka_bootstrap: str, tmp_path: Path
) -> None:
    """The topic of its definition is missing, and that is no trouble of anybody's."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(_RULES)
    asked = read_rules(rules).rules
    with psycopg.connect(home, autocommit=True) as connection:
        observer = Observer(kafka_bootstrap, asked.values())
        (seen,), troubles = observer.observe(observer.read_home(connection))
        assert [] == troubles
        judged = {name: rule.judge(seen, None) for name, rule in asked.items()}
        assert dict.fromkeys(asked, False) == {
            name: one.holds if one else None for name, one in judged.items()
        }
        copies = read_from_kafka(
            kafka_bootstrap,
            [RecordPosition(topic=_RUN_TOPIC, partition=0, offset=1)],
            audit.read_topic_ids(connection, PIPELINE),
        )
        assert {} == copies
        assert audit.is_visible(connection, PIPELINE, TopicPartition(_RUN_TOPIC, 0), 0)
        with pytest.raises(ConfigurationError, match="only had batch runs"):
            audit.is_visible(connection, PIPELINE, TopicPartition(TOPIC, 0), 0)
        with pytest.raises(ConfigurationError, match=r"NO_GAP.*only had batch runs"):
            audit.find_gaps(connection, PIPELINE, {})


@pytest.mark.parametrize("is_there", [True, False])
def test_every_command_works_on_it_whether_or_not_kafka_does(
    home: str, kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    """None of them says that a topic is missing, or that Kafka does not answer."""
    monkeypatch.setenv(HOME_DSN_VARIABLE, home)
    monkeypatch.setenv(KAFKA_VARIABLE, kafka_bootstrap if is_there else "localhost:1")
    for command in ("status", "offsets show", "cost", "verify --recount"):
        result = _call(*command.split(), PIPELINE)
        assert 0 == result.exit_code, result.output
        assert "TOPIC_MISSING" not in result.output
        assert "unknown" not in result.output.replace("unknown contract", "")
    asked = _call("why", PIPELINE, "never")
    assert 1 == asked.exit_code
    assert "reads no topic: it has only had batch runs" in asked.output
    with psycopg.connect(home) as connection:
        row = connection.execute(
            "SELECT kafka_partition, kafka_offset FROM tallyweir.dead_letter"
        ).fetchone()
    assert row is not None
    record = f"{_RUN_TOPIC}/{row[0]}/{row[1]}"
    shown = _call("dead-letters", "show", PIPELINE, record)
    assert 0 == shown.exit_code, shown.output
    assert "a batch run read it" in shown.output


def test_its_letters_are_skipped_when_they_are_sent_again(home: str) -> None:
    """No topic could take them; without one Kafka is not even asked."""
    with psycopg.connect(home, autocommit=True) as connection:
        report = redrive(
            connection,
            "localhost:1",
            RedriveSelection(pipeline=PIPELINE, group=None, record=None),
            reason="mended",
        )
    assert report.not_read > 0
    assert 0 == report.sent


def test_offsets_of_it_are_none(home: str) -> None:
    """Those of runs are no part of a stream."""
    endpoints = Endpoints(kafka_bootstrap="localhost:1", home_dsn=home)
    assert () == read_offsets(endpoints, PIPELINE, now=datetime.now(UTC))
