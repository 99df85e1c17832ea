"""A driver's own Python function is found in the flame graph that is taken of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil
import psycopg
import pytest

from integration_tests.harness.driver_world import DriverWorld, numbered
from integration_tests.harness.monitor_service import running_monitor
from integration_tests.harness.relayed_home import wait_for
from integration_tests.harness.transforming_pipeline import (
    write_transforming_pipeline,
)
from tallyweir.services.local.embedded.state_directory import ROOT
from tallyweir.sinks.postgres.records.profiles import (
    KEPT,
    ProfileKind,
    TakenProfile,
    keep_profile,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_DAEMON = "tallyweir.spark_jobs.engine.python_daemon"

#: Nothing but this function takes time: a quarter of a second for each event.
_SLOW = """
@F.udf("string")
def burn_slowly(sensor):
    total = 0
    for n in range(4_000_000):
        total += n
    return sensor
return events.withColumn("burnt", burn_slowly("sensor"))
"""


@pytest.mark.long
def test_a_slow_function_of_a_transform_is_in_the_flame_graph(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Python's by name, the JVM's if there is a JDK; kept, and shown as a picture."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.pipeline_file = tmp_path / "readings.py"
    write_transforming_pipeline(world, world.pipeline_file, _SLOW)
    world.topic.send(numbered(world, 0, 400))
    with world.driver() as driver:
        # Its session is there long before the first task.
        wait_for(lambda: _burns(driver._process.pid), "a worker at work")
        done = _profile(home_dsn, kafka_bootstrap, "--seconds", "15", f"{tmp_path}")
        assert 0 == done.returncode, done.stderr
    (python,) = tmp_path.glob("readings-python-*.svg")
    titles = [one.text or "" for one in ET.parse(python).iter() if "title" in one.tag]
    (slow,) = [one for one in titles if "burn_slowly (" in one]
    assert float(slow.rsplit(" ", 1)[1].rstrip("%)")) > 20, slow
    assert any(one.startswith("Python workers (") for one in titles)
    if "left out" not in done.stderr:
        (jvm,) = tmp_path.glob("readings-jvm-*.svg")
        # Its threads may all wait: what takes time is Python's.
        assert "java.lang." in jvm.read_text("utf-8")
    with running_monitor(home_dsn, kafka_bootstrap) as page:
        kept = page.get("/api/pipelines/readings/profiles").json()
        (number,) = [one["profile_id"] for one in kept if one["kind"] == "python"]
        shown = page.get(f"/api/pipelines/readings/profiles/{number}.svg")
        assert python.read_text("utf-8") == shown.text
        assert "image/svg+xml" in shown.headers["content-type"]
        assert "default-src 'none'; sandbox" == shown.headers["content-security-policy"]
        assert "nosniff" == shown.headers["x-content-type-options"]
        assert 404 == page.get("/api/pipelines/readings/profiles/999.svg").status_code
    gone = _profile(home_dsn, kafka_bootstrap, "--seconds", "1", f"{tmp_path}")
    assert 78 == gone.returncode
    assert "PROFILE_NO_DRIVER" in gone.stderr


def _burns(process_id: int) -> bool:
    """Whether a Python worker, which the daemon has forked, has worked for a while."""
    for child in psutil.Process(process_id).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            parent = child.parent()
            if (
                parent is not None
                and _DAEMON in child.cmdline()
                and _DAEMON in parent.cmdline()
                and child.cpu_times().user > 1
            ):
                return True
    return False


def _profile(
    home_dsn: str, bootstrap: str, flag: str, seconds: str, output: str
) -> subprocess.CompletedProcess[str]:
    command = ["profile", "readings", flag, seconds, "--output", output]
    return subprocess.run(
        [sys.executable, "-P", "-m", "tallyweir.services.cli", *command],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "TALLYWEIR_HOME_DSN": home_dsn,
            "TALLYWEIR_KAFKA_BOOTSTRAP": bootstrap,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_newest_few_of_each_kind_are_kept(home_dsn: str) -> None:
    """Of each pipeline by itself."""
    with psycopg.connect(home_dsn) as home:
        for name in ("orders", "payments"):
            definition = json.dumps({"source": {"topic": name}})
            home.execute(
                "INSERT INTO tallyweir.pipeline (pipeline, definition, "
                "definition_hash, shards, bucket_seconds) VALUES (%s, %s, '', 1, 1)",
                (name, definition),
            )
        home.commit()
        for name in ("payments", *["orders"] * (KEPT + 2)):
            for kind in ProfileKind:
                keep_profile(
                    home,
                    TakenProfile(
                        pipeline=name,
                        kind=kind,
                        host="here",
                        epoch=1,
                        seconds=1,
                        samples=0,
                        svg="<svg/>",
                    ),
                )
        rows = home.execute(
            "SELECT pipeline, kind, count(*), min(profile_id) FROM tallyweir.profile "
            "GROUP BY 1, 2 ORDER BY 1, 2"
        ).fetchall()
    assert [
        ("orders", "jvm", KEPT, 8),
        ("orders", "python", KEPT, 7),
        ("payments", "jvm", 1, 2),
        ("payments", "python", 1, 1),
    ] == rows
