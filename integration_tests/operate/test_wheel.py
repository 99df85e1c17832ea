"""The wheel, installed into an environment of its own, away from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration_tests.harness.postgres_driver import query
from tallyweir.services.dev.images.build import build_wheel
from tallyweir.services.local.embedded.state_directory import ROOT, share_fetched
from tallyweir.services.local.embedded.virtual_environment import RUNTIME_LOCK, install
from tallyweir.services.process.endpoints import KAFKA_VARIABLE
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1200)]

_EXTRAS = "spark,ingest,embedded"
_OWN_PACKAGES = ("schemas", "services", "sinks", "spark_jobs")
_CONTRACT = {
    "type": "record",
    "name": "MeterReading",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "meter", "type": "string"},
        {
            "name": "read_at",
            "type": {"type": "long", "logicalType": "timestamp-millis"},
        },
    ],
}
_EVENTS = """\
id,meter,read_at
r1,north,2024-05-01T10:00:00Z
r2,south,2024-05-01T10:10:00Z
r1,north,2024-05-01T10:00:00Z
"""
_PIPELINE = """\
from datetime import timedelta

import schemas, services, sinks, spark_jobs
from pyspark.sql import functions as F
from tallyweir import Append, Pipeline, Source


def transform(events):
    words = (schemas.WORD, services.WORD, sinks.WORD, spark_jobs.WORD)
    return events.withColumn("word", F.lit(" ".join(words)))


pipeline = Pipeline(
    name="meters",
    source=Source(
        topic="meters",
        schema="meter.v1.avsc",
        event_id="id",
        event_time="read_at",
        watermark_delay=timedelta(minutes=5),
    ),
    transform=transform,
    outputs=(Append(table="readings", columns=("id", "meter", "word")),),
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An environment with the wheel, and a user's folder.

    Attributes:
        packages: Its ``site-packages``.
        new: What installing the wheel has added to them.
        directory: The user's folder, with packages that have the names of our folders.
    """

    environment: Path
    packages: Path
    new: frozenset[str]
    directory: Path

    def run(self, *words: str, variables: Mapping[str, str]) -> str:
        """Run a command in the user's folder; return what it says on stdout."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name != "PYTHONPATH"
            and not name.startswith(("PG", "PYSPARK_", "TALLYWEIR_"))
        }
        done = subprocess.run(
            [str(self.environment / "bin" / "tallyweir"), *words],
            cwd=self.directory,
            env={
                **inherited,
                "XDG_DATA_HOME": str(self.directory / "data"),
                **variables,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with its extras, which need exactly what the lock has."""
    directory = tmp_path_factory.mktemp("user")
    environment = directory / "environment"
    install(RUNTIME_LOCK, venv=environment)
    (packages,) = environment.glob("lib/python*/site-packages")
    before = {path.name for path in packages.iterdir()}
    wheel = build_wheel(directory / "wheel")
    program = str(environment / "bin" / "python")
    asked = [program, "-m", "pip", "install", "--no-index", f"{wheel}[{_EXTRAS}]"]
    subprocess.run(asked, check=True, capture_output=True)
    for name in _OWN_PACKAGES:
        (directory / name).mkdir()
        (directory / name / "__init__.py").write_text(f"WORD = 'my-{name}'\n")
    state = directory / "data" / "tallyweir"
    state.mkdir(parents=True)
    share_fetched(state)
    return Installed(
        environment=environment,
        packages=packages,
        new=frozenset(path.name for path in packages.iterdir()) - before,
        directory=directory,
    )


def test_one_name_enters_site_packages(installed: Installed) -> None:
    """And what pip knows of it."""
    (metadata,) = (name for name in installed.new if name.endswith(".dist-info"))
    assert installed.new == {"tallyweir", metadata}
    assert metadata.startswith("tallyweir-")


def test_the_wheel_has_every_file_that_is_for_no_test(installed: Installed) -> None:
    """Statements, pages, contracts and pipelines among them."""
    listed = subprocess.run(
        ["git", "ls-files", *_OWN_PACKAGES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = {
        name
        for name in listed.stdout.split()
        if "tests" not in name.split("/") and not name.endswith(".patch")
    }
    package = installed.packages / "tallyweir"
    assert {name for name in files if not (package / name).is_file()} == set()


def test_the_demo_verifies(installed: Installed) -> None:
    """With servers of its own, whose data lie in the user's data directory."""
    said = installed.run("demo", "--events", "5000", "--json", variables={})
    assert json.loads(said.splitlines()[-1])["verified"] is True


def test_a_python_pipeline_has_its_own_packages(
    installed: Installed, home_dsn: str, kafka_bootstrap: str
) -> None:
    """Packages of a user that are called like our folders are not hidden."""
    directory = installed.directory
    (directory / "meters.py").write_text(_PIPELINE)
    (directory / "meters.csv").write_text(_EVENTS)
    (directory / "meter.v1.avsc").write_text(json.dumps(_CONTRACT))
    variables = {HOME_DSN_VARIABLE: home_dsn, KAFKA_VARIABLE: kafka_bootstrap}
    installed.run(
        "batch", "meters.py", "--input=meters.csv", "--run=one", variables=variables
    )
    assert "verified" in installed.run("verify", "meters", variables=variables)
    rows = query(home_dsn, "SELECT id, word FROM readings ORDER BY id")
    words = " ".join(f"my-{name}" for name in _OWN_PACKAGES)
    assert rows == [("r1", words), ("r2", words)]
