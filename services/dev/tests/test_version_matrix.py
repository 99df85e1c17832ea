"""Which versions ``tallyweir test --matrix`` brings together, and what it says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from tallyweir.services.dev import version_matrix
from tallyweir.services.dev.version_matrix import (
    KAFKAS,
    POSTGRES,
    PYTHONS,
    TESTS,
    MissingError,
    all_cells,
    run_matrix,
)
from tallyweir.services.local.embedded.jars import (
    BROKER_CLASSPATH_VARIABLE,
    TEST_JAR_LOCK,
    broker_classpath,
    locked_jars,
)
from tallyweir.services.local.embedded.postgres import PROGRAMS_VARIABLE, server_binary
from tallyweir.services.local.embedded.state_directory import ROOT


def test_every_two_versions_meet_in_a_cell() -> None:
    """What breaks between two parts shows; three at once would take twice as long."""
    cells = all_cells()
    assert {(one.python, one.postgres) for one in cells} == set(
        product(PYTHONS, POSTGRES)
    )
    assert {(one.python, one.kafka) for one in cells} == set(product(PYTHONS, KAFKAS))
    assert {(one.postgres, one.kafka) for one in cells} == set(
        product(POSTGRES, KAFKAS)
    )


def test_each_cell_says_passed_failed_or_why_it_was_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a cell that failed makes the whole run fail."""
    lines: list[str] = []

    def run(cell: version_matrix.Cell, arguments: Sequence[str]) -> int:
        assert arguments == ("-k", "fence")
        if cell.python == "3.12":
            raise MissingError("no python3.12 on PATH that runs")
        return 1 if cell.python == "3.13" and cell.postgres == "16" else 0

    monkeypatch.setattr(version_matrix, "_run", run)
    assert not run_matrix(("-k", "fence"), lines.append)
    text = lines[-1]
    assert "Python 3.11  Postgres 15  Kafka 3.9  passed" in text
    assert "Python 3.12  Postgres 15  Kafka 4.4  not available: no python3.12" in text
    assert "Python 3.13  Postgres 16  Kafka 4.4  FAILED (1)" in text
    assert len(text.split("\n")) == len(all_cells()) + 1


def test_its_tests_are_there() -> None:
    """A test that has moved is no test of a version."""
    assert all((ROOT / test).is_file() for test in TESTS)


def test_each_other_server_is_locked_and_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise a cell would run the servers that this version has anyway."""
    for section in ("broker-3.9", "postgres-15", "postgres-16", "postgres-17"):
        jars = locked_jars(section, lock=TEST_JAR_LOCK)
        assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in jars)
    monkeypatch.setenv(BROKER_CLASSPATH_VARIABLE, f"a.jar{os.pathsep}b.jar")
    monkeypatch.setenv(PROGRAMS_VARIABLE, str(tmp_path))
    assert broker_classpath() == f"a.jar{os.pathsep}b.jar"
    assert server_binary("postgres") == tmp_path / "postgres"
