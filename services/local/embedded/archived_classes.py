"""Keeps Spark's classes in an archive of loaded classes: drivers start faster."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tallyweir.services.local.embedded.extras import package_folder
from tallyweir.services.local.embedded.java import find_java
from tallyweir.services.local.embedded.state_directory import exclusive, state_directory

_TIMEOUT_S = 300


def class_archive(environment: Mapping[str, str]) -> Path | None:
    """Return the archive for this machine's Java and Spark; made on first use.

    It only makes a start faster. So if making it fails, this returns None, and never
    tries again.

    Args:
        environment: Environment of a driver.

    Crash:
        The archive is moved into place when it is whole. After an earlier crash, the
        next call makes it.
    """
    directory = state_directory() / "class_archive"
    archive = directory / f"{_fingerprint()}.jsa"
    if not archive.exists():
        with exclusive(directory):
            if not archive.exists():
                _make(archive, environment)
    return archive if archive.stat().st_size else None


def _make(archive: Path, environment: Mapping[str, str]) -> None:
    sys.stderr.write(
        "tallyweir: preparing Spark's classes, once, for drivers to start faster\n"
    )
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    try:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "tallyweir.spark_jobs.engine.class_archive",
                str(partial),
            ],
            cwd=archive.parent,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=True,
            start_new_session=True,
        )
    except subprocess.SubprocessError:
        partial.unlink(missing_ok=True)
    if not partial.exists():
        partial.touch()
    # A JVM trusts an archive with a valid header, so no crash may leave half of one.
    with partial.open("rb") as written:
        os.fsync(written.fileno())
    partial.replace(archive)


def _fingerprint() -> str:
    """Hash what an archive depends on: this Java, this Spark, and their paths."""
    jars = package_folder("pyspark") / "jars"
    java = find_java().resolve()
    parts = (java, java.stat().st_mtime_ns, jars, jars.stat().st_mtime_ns)
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]
