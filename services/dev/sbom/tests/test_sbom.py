"""The bill of materials: complete, allowed, and the same each time."""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from tallyweir.services.dev.sbom.components import (
    JAR_SECTIONS,
    RUNTIME_LOCKS,
    BundledJar,
    Component,
    parse_requirements,
    read_components,
    read_jars,
)
from tallyweir.services.dev.sbom.cyclonedx import cyclonedx
from tallyweir.services.dev.sbom.licences import LicenceRules, check_licences
from tallyweir.services.local.embedded.state_directory import ROOT
from tallyweir.sinks.protocol.errors import ConfigurationError

_RULES = LicenceRules.read(ROOT)


def _package(name: str) -> Component:
    return Component(
        group="", name=name, version="1", hashes=("0" * 64,), locks=("a.lock",)
    )


def _jar(group: str) -> Component:
    return replace(_package("jar"), group=group)


def test_every_part_of_this_repository_has_a_licence_that_is_allowed() -> None:
    """So that a new dependency without one fails here."""
    components = read_components(ROOT)
    licences = check_licences(components, _RULES)
    assert {one.purl for one in components} == set(licences)


def test_no_locked_part_is_left_out() -> None:
    """Counted in another way: by lines that pin, and by lines that hold a jar."""
    pinned = {
        f"pkg:pypi/{name.lower()}@{version}"
        for lock in RUNTIME_LOCKS
        for name, version in re.findall(
            r"^(\S+)==([^\s;]+)", (ROOT / lock).read_text(), re.MULTILINE
        )
    }
    jars = tomllib.loads((ROOT / "jars.lock").read_text())
    assert set(JAR_SECTIONS) == set(jars)
    coordinates = {
        ":".join(entry.split(":")[:3]) for section in jars.values() for entry in section
    }
    components = read_components(ROOT)
    assert pinned == {one.purl for one in components if not one.group}
    assert coordinates == {
        f"{one.group}:{one.name}:{one.version}" for one in components if one.group
    }
    hashes = {digest for one in components for digest in one.hashes}
    locked = {digest for section in jars.values() for digest in section.values()}
    for lock in RUNTIME_LOCKS:
        locked |= set(re.findall(r"sha256:([0-9a-f]+)", (ROOT / lock).read_text()))
    assert locked == hashes


def test_licences_are_looked_up_for_locked_parts_only() -> None:
    """What is gone from the locks goes from the file as well."""
    components = read_components(ROOT)
    names = {one.name for one in components if not one.group}
    groups = {one.group for one in components if one.group}
    assert set(_RULES.packages) <= names
    assert set(_RULES.jars) == groups
    for licence, parts in _RULES.allowed_for.items():
        assert parts <= names, licence
        assert licence not in _RULES.allowed


@pytest.mark.parametrize(
    ("component", "licence", "allowed"),
    [
        (_package("any"), "MIT", True),
        (_package("any"), "GPL-3.0-only", False),
        (_package("any"), "MIT OR GPL-3.0-only", True),
        (_package("any"), "MIT AND GPL-3.0-only", False),
        (_package("any"), "GPL-3.0-only AND MIT OR Apache-2.0", True),
        (_package("any"), "MIT AND GPL-3.0-only OR SSPL-1.0", False),
        (_package("any"), "(MIT)", False),
        (_package("any"), "mit", False),
        (_package("any"), "LGPL-3.0-only", False),
        (_package("psycopg"), "LGPL-3.0-only", True),
        (_package("psycopg2"), "LGPL-3.0-only", False),
        (_package("psycopg"), "LGPL-3.0-only AND GPL-3.0-only", False),
    ],
)
def test_a_licence_is_allowed_by_its_exact_identifier(
    component: Component,
    licence: str,
    allowed: bool,  # noqa: FBT001 - pytest fills it in by its name
) -> None:
    """What asks for more is allowed for the part that it was looked up for."""
    assert allowed == _RULES.allows(component, licence)


@pytest.mark.parametrize(
    ("component", "licence"),
    [
        (_package("structlog"), "MIT OR Apache-2.0"),  # by its expression
        (_package("psutil"), "BSD-3-Clause"),  # by its field, if that is an identifier
        (_package("markdown-it-py"), "MIT"),  # by its one classifier
        (_package("pandas"), "BSD-3-Clause"),  # by our file: its field is the text
        (_package("not-installed-anywhere"), None),
        (_jar("org.slf4j"), "MIT"),
        (_jar("org.unknown"), None),
    ],
    ids=lambda value: value.name if isinstance(value, Component) else str(value),
)
def test_a_licence_comes_from_the_file_or_from_what_is_installed(
    component: Component, licence: str | None
) -> None:
    """Nothing is guessed from words."""
    assert licence == _RULES.licence_of(component)


def test_all_parts_that_are_refused_are_named_at_once() -> None:
    """A person reads the list once."""
    rules = replace(_RULES, packages={**_RULES.packages, "evil": "SSPL-1.0"})
    parts = [_package("evil"), _package("not-installed-anywhere"), _jar("org.slf4j")]
    with pytest.raises(ConfigurationError) as raised:
        check_licences(parts, rules)
    assert "LICENCE_REFUSED" == raised.value.code
    assert "pkg:pypi/evil@1: SSPL-1.0" in raised.value.saw
    assert "pkg:pypi/not-installed-anywhere@1: its metadata" in raised.value.saw
    assert "slf4j" not in raised.value.saw


def test_a_part_of_several_locks_is_listed_once_with_all_its_files(
    tmp_path: Path,
) -> None:
    """Each lock may name a file that another one leaves out."""
    for digit, lock in enumerate(RUNTIME_LOCKS):
        text = f"Part==1 --hash=sha256:{str(digit % 2) * 64}\n"
        (tmp_path / lock).write_text(text)
    jars = (f'[{section}]\n"g:a:1" = "{"9" * 64}"\n' for section in JAR_SECTIONS)
    (tmp_path / "jars.lock").write_text("".join(jars))
    jar, part = read_components(tmp_path)
    assert ("g", "a", ("9" * 64,)) == (jar.group, jar.name, jar.hashes)
    assert ("part", ("0" * 64, "1" * 64)) == (part.name, part.hashes)
    assert RUNTIME_LOCKS == part.locks


@pytest.mark.parametrize("line", ["a>=1 --hash=sha256:" + "0" * 64, "a==1", "a @ b"])
def test_a_line_without_pin_or_hash_is_refused(line: str) -> None:
    """A lock that is not one must not pass for a short one."""
    with pytest.raises(ValueError, match="not a pinned"):
        parse_requirements(f"{line}\n", "some.lock")


def test_the_document_is_cyclonedx_and_reproducible(tmp_path: Path) -> None:
    """The fields that the schema of 1.6 demands, and unique references."""
    components = read_components(ROOT)
    licences = check_licences(components, _RULES)
    first, second, newer = (
        cyclonedx(components, licences, [], version=version)
        for version in ("1", "1", "2")
    )
    assert first == second
    assert first["serialNumber"] != newer["serialNumber"]
    file = tmp_path / "bom.json"
    file.write_text(json.dumps(first))
    document = json.loads(file.read_text())
    assert ("CycloneDX", "1.6") == (document["bomFormat"], document["specVersion"])
    assert re.fullmatch(
        r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", document["serialNumber"]
    )
    parts = document["components"]
    references = [part["bom-ref"] for part in parts]
    assert len(set(references)) == len(references) == len(components)
    for part in parts:
        assert "library" == part["type"]
        assert part["purl"].startswith(("pkg:pypi/", "pkg:maven/"))
        assert f"@{quote(part['version'])}" in part["purl"]
        assert part["hashes"]
        (licence,) = part["licenses"]
        assert {"expression"} == set(licence) or {"id"} == set(licence["license"])
        assert part["properties"]


def test_jars_inside_of_pyspark_are_listed_below_it(tmp_path: Path) -> None:
    """With their group where they tell it, and without where they hold others' too."""
    held = {
        "json4s-ast_2.13-4.0.7.jar": (),
        "slf4j-api-2.0.17.jar": ("org.slf4j/slf4j-api",),
        "fat-1.0-jre.jar": ("org.fat/fat", "com.shaded/fat", "org.other/other"),
    }
    for name, coordinates in held.items():
        with zipfile.ZipFile(tmp_path / name, "w") as jar:
            for one in coordinates:
                jar.writestr(f"META-INF/maven/{one}/pom.properties", "")
    jars = read_jars(tmp_path)
    assert [
        ("", "fat", "1.0-jre"),
        ("", "json4s-ast_2.13", "4.0.7"),
        ("org.slf4j", "slf4j-api", "2.0.17"),
    ] == [(jar.group, jar.artifact, jar.version) for jar in jars]
    document = cyclonedx(
        [_package("other"), _package("pyspark")],
        {"pkg:pypi/other@1": "MIT", "pkg:pypi/pyspark@1": "Apache-2.0"},
        jars,
        version="1",
    )
    other, pyspark = json.loads(json.dumps(document))["components"]
    assert "components" not in other
    assert ["", "", "pkg:maven/org.slf4j/slf4j-api@2.0.17?type=jar"] == [
        jar.get("purl", "") for jar in pyspark["components"]
    ]


def test_a_jar_without_a_version_is_no_part_that_could_be_named(tmp_path: Path) -> None:
    """It is refused, or it would be missing from the list."""
    (tmp_path / "nameless.jar").touch()
    with pytest.raises(ValueError, match="does not name its version"):
        read_jars(tmp_path)
    assert "" == BundledJar(group="", artifact="a", version="1", sha256="0").purl
