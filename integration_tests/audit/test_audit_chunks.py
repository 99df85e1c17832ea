"""The audit counts the IDs of chunks as those of runs, and finds what was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.harness.filed_ids import COUNTS
from integration_tests.harness.postgres_driver import execute, query
from integration_tests.ledger_scenario import PIPELINE as AUDITED
from integration_tests.ledger_scenario import LedgerScenario, fake_fingerprint
from tallyweir.sinks.postgres.audit import explain, verify
from tallyweir.sinks.postgres.audit.receipt import Verdict
from tallyweir.sinks.postgres.audit.why.explanation import CatalogHit
from tallyweir.sinks.postgres.catalog.catalog_merge import (
    MergeablePipeline,
    merge_next_bucket,
)


def _merge_scenario(scenario: LedgerScenario, home_dsn: str, directory: Path) -> None:
    pipeline = MergeablePipeline(
        name=AUDITED,
        number=1,
        closed_through=2**40,
        through_sequence=3,
        false_positives=0.001,
    )
    scenario.connection.commit()
    while merge_next_bucket(home_dsn, pipeline, directory):
        pass


def test_verify_counts_the_ids_of_each_batch_in_chunks(
    scenario: LedgerScenario, home_dsn: str, tmp_path: Path
) -> None:
    """As it does in runs."""
    _merge_scenario(scenario, home_dsn, tmp_path)
    assert 0 == query(home_dsn, COUNTS)[0][0]
    receipt = verify(scenario.connection, AUDITED)
    (check,) = (check for check in receipt.checks if check.name == "seen_ids")
    assert Verdict.OK is check.verdict
    assert check.checked


def test_why_names_the_batch_of_an_id_in_a_chunk(
    scenario: LedgerScenario, home_dsn: str, tmp_path: Path
) -> None:
    """A merge takes nothing away that a person may ask for."""
    found = scenario.connection.execute("SELECT event_id FROM departures")
    ids = [row[0] for row in found]
    scenario.connection.commit()
    assert ids

    def hits() -> list[tuple[CatalogHit, ...]]:
        connection = scenario.connection
        found = [explain(connection, AUDITED, one, fake_fingerprint) for one in ids]
        connection.rollback()
        return [explanation.catalog_hits for explanation in found]

    before = hits()
    assert all(len(found) == 1 for found in before)
    _merge_scenario(scenario, home_dsn, tmp_path)
    assert before == hits()


@pytest.mark.parametrize(
    ("forgery", "told"),
    [
        ("DELETE FROM tallyweir.seen_id_run WHERE bucket = {b}", "holds 0 IDs"),
        (
            (
                "UPDATE tallyweir.seen_id_run SET sequences = "
                "overlay(sequences PLACING '\\x00000009' FROM 1)"
            ),
            "which committed 0",
        ),
        (
            "UPDATE tallyweir.seen_id_run SET chunks = 2, chunk = 1 WHERE ids > 2",
            "has IDs of another chunk",
        ),
        (
            (
                "UPDATE tallyweir.seen_id_run SET filter = "
                "decode(repeat('00', octet_length(filter)), 'hex')"
            ),
            "does not let its own IDs pass",
        ),
    ],
)
def test_verify_finds_chunks_that_were_changed(
    scenario: LedgerScenario, home_dsn: str, tmp_path: Path, forgery: str, told: str
) -> None:
    """An ID that would not be found counts twice."""
    _merge_scenario(scenario, home_dsn, tmp_path)
    ((bucket,),) = query(home_dsn, "SELECT max(bucket) FROM tallyweir.seen_id_run")
    execute(home_dsn, forgery.replace("{b}", str(bucket)))
    receipt = verify(scenario.connection, AUDITED)
    (check,) = (check for check in receipt.checks if check.name == "seen_ids")
    assert Verdict.FAILED is check.verdict
    assert any(told in violation for violation in check.violations)
