"""The parts that the lock files name: Python packages and jars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
JAR_SECTIONS = ("spark", "broker", "bench", "flink")

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
    """

    group: str
    name: str
    version: str
    hashes: tuple[str, ...]
    locks: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its package URL, which is unique."""
        if self.group:
            return f"pkg:maven/{self.group}/{self.name}@{self.version}?type=jar"
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
            )


def _united(one: Component, other: Component) -> Component:
    return Component(
        group=one.group,
        name=one.name,
        version=one.version,
        hashes=_without_repeats([*one.hashes, *other.hashes]),
        locks=_without_repeats([*one.locks, *other.locks]),
    )


def _without_repeats(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
