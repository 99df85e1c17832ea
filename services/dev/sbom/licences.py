"""Finds the licence of each part, and whether the part may come with Tallyweir."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from tallyweir.services.dev.sbom.components import Component
from tallyweir.sinks.protocol.errors import ConfigurationError

LICENCES = "licences.toml"

#: Trove classifiers that mean one licence. "BSD License" does not: there are several.
_BY_CLASSIFIER = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: MIT License": "MIT",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceRules:
    """The rules of ``licences.toml``.

    Attributes:
        allowed: SPDX identifiers that every part may have.
        allowed_for: Other identifiers, with the names of the parts that may have them.
        packages: Licences of Python packages whose metadata does not name them.
        jars: Licences of jars, by group or ``group:artifact``.
    """

    allowed: frozenset[str]
    allowed_for: Mapping[str, frozenset[str]]
    packages: Mapping[str, str]
    jars: Mapping[str, str]

    @classmethod
    def read(cls, root: Path) -> LicenceRules:
        """Read the rules of a repository."""
        rules = tomllib.loads((root / LICENCES).read_text("utf-8"))
        return cls(
            allowed=frozenset(rules["allowed"]),
            allowed_for={
                licence: frozenset(names)
                for licence, names in rules["allowed_for"].items()
            },
            packages=rules["packages"],
            jars=rules["jars"],
        )

    def licence_of(self, component: Component) -> str | None:
        """Return a part's licence as an SPDX expression; None if it is unknown.

        The rules take precedence over the metadata, because a maintainer checked them.
        """
        if component.group:
            exact = self.jars.get(f"{component.group}:{component.name}")
            return exact or self.jars.get(component.group)
        return self.packages.get(component.name) or _declared(
            component.name, self.allowed
        )

    def allows(self, component: Component, expression: str) -> bool:
        """Tell whether a part may come with Tallyweir under an SPDX expression.

        With OR one side must be allowed. With AND, which binds closer, both sides must
        be. Brackets are not understood, and so never allowed.
        """
        return any(
            all(self._allows_one(component.name, one) for one in each.split(" AND "))
            for each in expression.split(" OR ")
        )

    def _allows_one(self, name: str, licence: str) -> bool:
        return licence in self.allowed or name in self.allowed_for.get(licence, ())


def check_licences(
    components: Iterable[Component], rules: LicenceRules
) -> dict[str, str]:
    """Return the licence of every part, by its package URL.

    Raises:
        ConfigurationError: ``LICENCE_REFUSED``, naming each part whose licence is
            unknown or not allowed.
    """
    found: dict[str, str] = {}
    refused = []
    for component in components:
        licence = rules.licence_of(component)
        if licence is None:
            refused.append(f"{component.purl}: its metadata names no licence")
        elif not rules.allows(component, licence):
            refused.append(f"{component.purl}: {licence}")
        else:
            found[component.purl] = licence
    if refused:
        raise ConfigurationError(
            "LICENCE_REFUSED",
            saw="\n".join(["Parts without an allowed licence:", *refused]),
            why="Everything that is distributed with Tallyweir must be compatible "
            "with Apache-2.0.",
            fix="Replace the part; or, once its licence has been reviewed and "
            f"accepted, add it to {LICENCES}.",
        )
    return found


def _declared(name: str, known: frozenset[str]) -> str | None:
    """Read the licence that an installed package declares, in any of its fields."""
    try:
        declared = metadata(name)
    except PackageNotFoundError:
        return None
    if "License-Expression" in declared:
        return declared["License-Expression"]
    text = declared["License"].strip() if "License" in declared else ""
    if text in known:
        return text
    licences = {
        _BY_CLASSIFIER.get(classifier)
        for classifier in declared.get_all("Classifier") or []
        if classifier.startswith("License ::")
    }
    # Two classifiers may mean that both licences apply, or either of them.
    return licences.pop() if len(licences) == 1 else None
