"""``wait-for`` returns when readers see a record, and not before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.rows import TupleRow
from typer.testing import CliRunner

from integration_tests.ledger_scenario import PIPELINE, TOPIC, LedgerScenario
from tallyweir.services.cli.app import build_app
from tallyweir.sinks.postgres import audit
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.offsets import TopicPartition

_PLACE = TopicPartition(TOPIC, 0)
#: Partition 0 of the scenario is read up to here.
_NEXT = 12


@pytest.fixture(autouse=True)
def _home(
    home_dsn: str, scenario: LedgerScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYWEIR_HOME_DSN", home_dsn)
    # Kafka is not asked.
    monkeypatch.setenv("TALLYWEIR_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    assert scenario.next_offsets[0] == _NEXT


def _wait_for(offset: int, *options: str, topic: str = TOPIC) -> str:
    arguments = ("wait-for", PIPELINE, topic, "0", str(offset), *options)
    result = CliRunner().invoke(build_app(), arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_record_that_was_published_is_not_waited_for() -> None:
    """The last offset of the batch is visible, whatever became of it."""
    assert "visible through offset 11" in _wait_for(_NEXT - 1, "--timeout", "0")


def test_a_record_that_was_not_read_is_not_visible() -> None:
    """What the pipeline will read next is the first that nobody sees."""
    with pytest.raises(RetryableError, match="NOT_VISIBLE_YET"):
        _wait_for(_NEXT, "--timeout", "0")


def test_waiting_ends_with_the_batch_that_brings_the_record(
    scenario: LedgerScenario,
) -> None:
    """It is published only after somebody has looked in vain."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_wait_for, _NEXT, "--timeout", "60")
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.3)
        scenario.publish({0: "C"})
        assert "visible through offset 12" in waiting.result(timeout=60)


def test_what_is_in_doubt_anywhere_is_not_visible(
    home_dsn: str, connection: psycopg.Connection[TupleRow]
) -> None:
    """Decided is not committed; what was committed before stays visible."""
    ((began,),) = connection.execute(
        "SELECT from_offset FROM tallyweir.batch_partition "
        "WHERE sequence = 3 AND partition = 0"
    ).fetchall()
    connection.execute(
        "INSERT INTO tallyweir.batch_branch VALUES (%s, 3, 'billing.0', 'gid', NULL)",
        (PIPELINE,),
    )
    connection.commit()
    with psycopg.connect(home_dsn) as home:
        assert not audit.is_visible(home, PIPELINE, _PLACE, began)
        assert audit.is_visible(home, PIPELINE, _PLACE, began - 1)
        connection.execute("UPDATE tallyweir.batch_branch SET committed_at = now()")
        connection.commit()
        assert audit.is_visible(home, PIPELINE, _PLACE, began)


def test_a_partition_that_nothing_was_read_of_is_not_visible(home_dsn: str) -> None:
    """It may be new, and its first record on its way."""
    with psycopg.connect(home_dsn) as home:
        assert not audit.is_visible(home, PIPELINE, TopicPartition(TOPIC, 9), 0)


def test_a_topic_that_the_pipeline_does_not_read_is_not_waited_for() -> None:
    """It would be waited for in vain."""
    with pytest.raises(ConfigurationError, match=r"TOPIC_NOT_READ.*orders"):
        _wait_for(0, topic="elsewhere")
