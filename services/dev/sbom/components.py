"""The parts of the product: packages and jars of the locks, and pyspark's own jars.

No lock names the jars inside of the ``pyspark`` package. The hash of the package pins
all of them, and its licence files cover them. So does the hash of the schema registry's
archive pin the jars inside of that.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tallyweir.services.local.embedded.jars import JAR_LOCK, locked_jars

#: Locks of what users get: laptop, images and benchmarks. Locks that only tests and
#: linters need are left out.
RUNTIME_LOCKS = (
    "requirements.lock",
    "requirements-services.lock",
    "requirements-spark.lock",
    "requirements-java.lock",
    "requirements-peers.lock",
    "requirements-notebook.lock",
)
JAR_SECTIONS = ("spark", "broker", "bench", "flink", "registry")

_REQUIREMENT = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_UNHASHED = re.compile(r"^[A-Za-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One version of one part.

    Attributes:
        group: Maven's ``groupId``; empty for a Python package.
        hashes: SHA-256 of each file that may be installed, in hex.
        locks: The locks that name it, such as ``jars.lock#spark`` for a section.
        qualifiers: What Maven needs beside the version, as a package URL has it; empty
            for a Python package.
    """

    group: str
    name: str
    version: str
    hashes: tuple[str, ...]
    locks: tuple[str, ...]
    qualifiers: str = ""

    @property
    def purl(self) -> str:
        """Its package URL, which is unique."""
        if self.group:
            return (
                f"pkg:maven/{self.group}/{self.name}@{self.version}?{self.qualifiers}"
            )
        return f"pkg:pypi/{self.name}@{self.version}"


def read_components(root: Path) -> list[Component]:
    """Read every lock of a repository; a part in several locks is one component.

    Raises:
        ValueError: A line of a lock is not understood, or has no hash.
    """
    found: dict[str, Component] = {}
    for component in (*_packages(root), *_jars(root)):
        known = found.get(component.purl)
        if known is None:
            found[component.purl] = component
        else:
            found[component.purl] = _united(known, component)
    return sorted(found.values(), key=lambda one: one.purl)


def parse_requirements(text: str, lock: str) -> list[Component]:
    """Read one lock of Python packages.

    Raises:
        ValueError: As ``read_components``.
    """
    components = []
    for entry in text.replace("\\\n", " ").splitlines():
        if not _UNHASHED.match(entry):
            continue
        requirement = _REQUIREMENT.match(entry)
        hashes = _HASH.findall(entry)
        if requirement is None or not hashes:
            raise ValueError(f"{lock}: {entry[:60]!r} is not a pinned, hashed package")
        components.append(
            Component(
                group="",
                name=requirement[1].lower(),
                version=requirement[2],
                hashes=tuple(hashes),
                locks=(lock,),
            )
        )
    return components


def _packages(root: Path) -> Iterable[Component]:
    for lock in RUNTIME_LOCKS:
        yield from parse_requirements((root / lock).read_text("utf-8"), lock)


def _jars(root: Path) -> Iterable[Component]:
    for section in JAR_SECTIONS:
        for jar in locked_jars(section, lock=root / JAR_LOCK.name):
            yield Component(
                group=jar.group,
                name=jar.artifact,
                version=jar.version,
                hashes=(jar.sha256,),
                locks=(f"{JAR_LOCK.name}#{section}",),
                qualifiers=jar.qualifiers,
            )


def _united(one: Component, other: Component) -> Component:
    return Component(
        group=one.group,
        name=one.name,
        version=one.version,
        hashes=_without_repeats([*one.hashes, *other.hashes]),
        locks=_without_repeats([*one.locks, *other.locks]),
        qualifiers=one.qualifiers,
    )


def _without_repeats(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


BUNDLING_PACKAGE = "pyspark"

#: A version begins with a digit after a hyphen, as in ``json4s-ast_2.13-4.0.7.jar``.
_JAR_FILE = re.compile(r"(?P<artifact>.+?)-(?P<version>\d[\w.+-]*)\.jar")
_COORDINATES = "META-INF/maven/(?P<group>[^/]+)/{artifact}/pom.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledJar:
    """A jar inside of the package.

    Attributes:
        group: Maven's ``groupId``; empty where the jar does not hold it.
    """

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def purl(self) -> str:
        """Its package URL; empty without a group."""
        if not self.group:
            return ""
        return f"pkg:maven/{self.group}/{self.artifact}@{self.version}?type=jar"


def installed_jars() -> list[BundledJar]:
    """Read the jars of the installed package; empty if it is not installed."""
    spec = find_spec(BUNDLING_PACKAGE)
    if spec is None or spec.origin is None:
        return []
    return read_jars(Path(spec.origin).parent / "jars")


def read_jars(directory: Path) -> list[BundledJar]:
    """Read the jars of a folder, sorted by name.

    Raises:
        ValueError: A file name contains no version.
    """
    return [_read_jar(file) for file in sorted(directory.glob("*.jar"))]


def _read_jar(file: Path) -> BundledJar:
    parts = _JAR_FILE.fullmatch(file.name)
    if parts is None:
        raise ValueError(f"{file.name} does not name its version")
    coordinates = re.compile(_COORDINATES.format(artifact=re.escape(parts["artifact"])))
    with zipfile.ZipFile(file) as jar:
        matches = map(coordinates.fullmatch, jar.namelist())
        groups = {match["group"] for match in matches if match}
    return BundledJar(
        group=groups.pop() if len(groups) == 1 else "",
        artifact=parts["artifact"],
        version=parts["version"],
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
    )
