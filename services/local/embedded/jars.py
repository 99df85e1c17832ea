"""Fetches the jars that Spark and Kafka need, and verifies their hashes.

``jars.lock`` lists every jar, including transitive ones, so a resolver only downloads.
If Maven is installed, it downloads them, because it honours the machine's settings.
Otherwise the Ivy that pyspark ships does.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tallyweir.services.local.embedded.extras import package_folder
from tallyweir.services.local.embedded.java import find_java
from tallyweir.services.local.embedded.state_directory import (
    ROOT,
    exclusive,
    state_directory,
)
from tallyweir.services.local.embedded.virtual_environment import last_lines
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError

JAR_LOCK = ROOT / "jars.lock"
#: Servers that only tests start.
TEST_JAR_LOCK = ROOT / "test-jars.lock"
#: Names the class path of another broker; ``test --matrix`` sets it.
BROKER_CLASSPATH_VARIABLE = "TALLYWEIR_TEST_BROKER"

_FETCH_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One artifact of a Maven repository.

    Attributes:
        group: Maven's ``groupId``.
        artifact: Maven's ``artifactId``.
        version: Exact version, never a range.
        sha256: Lower-case hex digest of the file.
        kind: The ending of its name.
        classifier: Maven's ``classifier``; empty for the main artifact.
    """

    group: str
    artifact: str
    version: str
    sha256: str
    kind: str = "jar"
    classifier: str = ""

    @property
    def file_name(self) -> str:
        of = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{of}.{self.kind}"

    @property
    def qualifiers(self) -> str:
        """Its kind and classifier, as a package URL has them."""
        of = f"classifier={self.classifier}&" if self.classifier else ""
        return f"{of}type={self.kind}"


def broker_classpath() -> str:
    """Return a Java class path of a whole Kafka broker; fetched on first use."""
    other = os.environ.get(BROKER_CLASSPATH_VARIABLE)
    return other or ":".join(map(str, ensure_jars("broker")))


@functools.cache
def locked_jars(section: str, *, lock: Path = JAR_LOCK) -> tuple[Jar, ...]:
    """Return the jars of one section of the lock file."""
    entries = tomllib.loads(lock.read_text())[section]
    jars = []
    for coordinates, sha256 in entries.items():
        group, artifact, version, *other = coordinates.split(":")
        kind, classifier = other or ("jar", "")
        jars.append(
            Jar(
                group=group,
                artifact=artifact,
                version=version,
                sha256=sha256,
                kind=kind,
                classifier=classifier,
            )
        )
    return tuple(jars)


def ensure_jars(section: str, *, lock: Path = JAR_LOCK) -> list[Path]:
    """Return the files of one section, fetched on first use and verified then.

    Raises:
        RetryableError: A jar could not be fetched.
        ConfigurationError: The hash of a fetched jar differs from the lock.

    Crash:
        A jar is moved into place only after it was verified, so every file there is
        good. The next call fetches the missing ones.
    """
    directory = state_directory() / "jars"
    jars = locked_jars(section, lock=lock)
    if any(not (directory / jar.file_name).exists() for jar in jars):
        with exclusive(directory):
            missing = [j for j in jars if not (directory / j.file_name).exists()]
            if missing:
                _fetch(missing, directory, section)
    return [directory / jar.file_name for jar in jars]


def verify_jar(jar: Jar, path: Path) -> None:
    """Check that a file is the locked one.

    Raises:
        ConfigurationError: The file has another SHA-256.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != jar.sha256:
        raise ConfigurationError(
            "JAR_CHANGED",
            saw=f"{path} has SHA-256 {found}, the lock says {jar.sha256}.",
            why="Code that is not the reviewed code must not run.",
            fix=f"remove {path} and start again; if the same hash returns, find out "
            "who serves it before you change jars.lock",
        )


def _fetch(jars: list[Jar], directory: Path, section: str) -> None:
    sys.stderr.write(f"tallyweir: fetching {len(jars)} jars ({section})\n")
    with tempfile.TemporaryDirectory(dir=directory, prefix="fetch-") as work:
        fetched = Path(work) / "out"
        maven = shutil.which("mvn")
        if maven:
            command = _maven_command(maven, jars, Path(work), fetched)
        else:
            command = _ivy_command(jars, Path(work), fetched)
        output = _run(command, Path(work))
        for jar in jars:
            path = fetched / jar.file_name
            if not path.exists():
                raise _not_fetched(jar, command[0], output)
            verify_jar(jar, path)
        for jar in jars:
            (fetched / jar.file_name).replace(directory / jar.file_name)


def _run(command: list[str], work: Path) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_FETCH_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_FETCH_TIMEOUT_S} s"
    return done.stdout


def _not_fetched(jar: Jar, tool: str, output: str) -> RetryableError:
    tail = last_lines(output)
    return RetryableError(
        "JARS_NOT_FETCHED",
        saw=f"{tool} did not fetch {jar.group}:{jar.artifact}:{jar.version}:\n{tail}",
        why="Spark and Kafka need the jars that jars.lock lists.",
        fix="check the network, or install Maven with settings for your mirror "
        "(on Debian: apt-get install maven), then start again",
    )


def _maven_command(maven: str, jars: list[Jar], work: Path, out: Path) -> list[str]:
    # Exclude everything transitive: the lock is complete, and some parent poms name
    # repositories that may not answer.
    dependencies = "".join(
        f"<dependency><groupId>{jar.group}</groupId>"
        f"<artifactId>{jar.artifact}</artifactId><version>{jar.version}</version>"
        f"<type>{jar.kind}</type><classifier>{jar.classifier}</classifier>"
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId>"
        "</exclusion></exclusions></dependency>"
        for jar in jars
    )
    (work / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>tallyweir</groupId>"
        "<artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    return [
        *(maven, "--batch-mode", "--quiet", "dependency:copy-dependencies"),
        f"-DoutputDirectory={out}",
    ]


def _ivy_command(jars: list[Jar], work: Path, out: Path) -> list[str]:
    dependencies = "".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} "
        f'rev={quoteattr(jar.version)} transitive="false" conf="default->master">'
        f"{_ivy_artifact(jar)}</dependency>"
        for jar in jars
    )
    (work / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="tallyweir" module="jars"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    ivy = next((package_folder("pyspark") / "jars").glob("ivy-*.jar"))
    return [
        *(str(find_java()), "-jar", str(ivy), "-ivy", str(work / "ivy.xml")),
        *("-retrieve", f"{out}/[artifact]-[revision](-[classifier]).[ext]"),
        *("-types", "bundle", *sorted({jar.kind for jar in jars})),
    ]


def _ivy_artifact(jar: Jar) -> str:
    if not jar.classifier:
        return ""
    kind = quoteattr(jar.kind)
    return (
        f"<artifact name={quoteattr(jar.artifact)} type={kind} ext={kind} "
        f"m:classifier={quoteattr(jar.classifier)}/>"
    )
