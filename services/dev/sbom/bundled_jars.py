"""Lists the jars inside of the ``pyspark`` package, which no lock names.

The hash of the package pins all of them, and its licence files cover them.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

BUNDLING_PACKAGE = "pyspark"

#: A version begins with a digit after a hyphen, as in ``json4s-ast_2.13-4.0.7.jar``.
_FILE = re.compile(r"(?P<artifact>.+?)-(?P<version>\d[\w.+-]*)\.jar")
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
    return [_read(file) for file in sorted(directory.glob("*.jar"))]


def _read(file: Path) -> BundledJar:
    parts = _FILE.fullmatch(file.name)
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
