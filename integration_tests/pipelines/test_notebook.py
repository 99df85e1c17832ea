"""The example notebook gives what it shows, and changes nothing where it looks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from integration_tests.harness.command import run_command
from tallyweir.services.local.embedded.state_directory import ROOT
from tallyweir.services.notebook.jupyter import install_jupyter, notebook_environment
from tallyweir.services.process.endpoints import Endpoints
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

# Jupyter is installed first, once for a state directory.
pytestmark = pytest.mark.timeout(400)

_EXAMPLE = ROOT / "docs" / "examples" / "notebook"
_SLICE = "views-notebook"
_FAULTS = ("--duplicates=0.2", "--poison=0.1", "--seed=8")
#: When Kafka took a record: on the day of the test, where its events are of 2024.
_TODAY = re.compile(r"20(?!24)\d\d-\S+ \S+")
_TABLES = (
    "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables "
    "WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
)


@pytest.fixture
def run_example(
    tmp_path: Path, home_dsn: str, kafka_bootstrap: str
) -> tuple[Path, Endpoints]:
    """The example in a folder of its own, its events sent and committed."""
    folder = tmp_path / "example"
    shutil.copytree(_EXAMPLE, folder, ignore=shutil.ignore_patterns(_SLICE))
    with psycopg.connect(home_dsn) as connection:
        connection.execute((folder / "countries.sql").read_bytes())
    emit = ("emit", "views.yaml", "--input=views.csv", "--partitions=2", *_FAULTS)
    for words in (
        emit,
        ("run", "views.yaml", "--once"),
        ("notebook", "views.yaml", "--records=25", "--no-open"),
    ):
        run_command(*words, variables={HOME_DSN_VARIABLE: home_dsn}, directory=folder)
    return folder, Endpoints(kafka_bootstrap=kafka_bootstrap, home_dsn=home_dsn)


@pytest.mark.long
def test_the_example_gives_the_outputs_that_it_keeps(
    run_example: tuple[Path, Endpoints], server_dsn: str
) -> None:
    """Every cell runs, every number is the same, and the home is as it was."""
    folder, endpoints = run_example
    notebook = folder / _SLICE / "notebook.ipynb"
    before = _content(endpoints.home_dsn)
    python = install_jupyter()
    done = subprocess.run(
        [python.with_name("jupyter-execute"), "--inplace", notebook],
        env=notebook_environment(endpoints),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kept = _EXAMPLE / _SLICE / "notebook.ipynb"
    for expected, found in zip(_cells(kept), _cells(notebook), strict=True):
        assert expected == found
    # No epoch is claimed, no position moved, no sequence used: nothing at all.
    assert before == _content(endpoints.home_dsn)
    with psycopg.connect(server_dsn) as connection:
        left = "SELECT FROM pg_database WHERE datname LIKE 'tallyweir_scratch%'"
        assert connection.execute(left).fetchall() == []


def _cells(notebook: Path) -> list[tuple[str, str]]:
    """Return what each cell says and what it has printed, but for when it was sent."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return [("".join(cell["source"]), _printed(cell)) for cell in cells]


def _printed(cell: dict[str, Any]) -> str:
    texts = [
        "".join(output.get("text") or output["data"]["text/plain"])
        for output in cell.get("outputs", ())
    ]
    words = "\n".join(texts)
    return " ".join(_TODAY.sub("TODAY", words).split())


def _content(dsn: str) -> dict[str, object]:
    """Return every table of a database with a digest of its rows, and its sequences."""
    with psycopg.connect(dsn) as connection:
        tables = [table for (table,) in connection.execute(_TABLES)]
        digest = "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY t::text)) FROM"
        content: dict[str, object] = {
            table: connection.execute(f"{digest} {table} AS t".encode()).fetchone()
            for table in tables
        }
        sequences = "SELECT schemaname, sequencename, last_value FROM pg_sequences"
        content["sequences"] = sorted(connection.execute(sequences).fetchall())
    return content
