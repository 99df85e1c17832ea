"""Writes a bill of materials in CycloneDX 1.6; the same locks give the same one."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence

from tallyweir.services.dev.sbom.components import (
    BUNDLING_PACKAGE,
    BundledJar,
    Component,
)

#: Any constant will do: the serial number is computed from the document's content.
_NAMESPACE = uuid.UUID("6f3c1d0e-8f57-4c1b-9f0e-2b1f6a3d7c55")


def cyclonedx(
    components: Sequence[Component],
    licences: Mapping[str, str],
    bundled: Sequence[BundledJar],
    *,
    version: str,
) -> dict[str, object]:
    """Build the document.

    It has no timestamp, so that every build of a version gives the same document.

    Args:
        components: Every part.
        licences: SPDX expressions by package URL.
        bundled: Jars inside of ``pyspark``, listed below it.
        version: Tallyweir's version.
    """
    parts = [_component(one, licences[one.purl]) for one in components]
    for part in parts:
        if bundled and part["name"] == BUNDLING_PACKAGE:
            part["components"] = [_bundled(jar) for jar in bundled]
    content = json.dumps([version, parts], sort_keys=True)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "tallyweir",
                "name": "tallyweir",
                "version": version,
                "licenses": _licences("Apache-2.0"),
            }
        },
        "components": parts,
    }


def _component(component: Component, licence: str) -> dict[str, object]:
    group = {"group": component.group} if component.group else {}
    return {
        "type": "library",
        "bom-ref": component.purl,
        **group,
        "name": component.name,
        "version": component.version,
        "hashes": [{"alg": "SHA-256", "content": one} for one in component.hashes],
        "licenses": _licences(licence),
        "purl": component.purl,
        "properties": [
            {"name": "tallyweir:lock", "value": lock} for lock in component.locks
        ],
    }


def _bundled(jar: BundledJar) -> dict[str, object]:
    named = {"group": jar.group, "purl": jar.purl} if jar.group else {}
    return {
        "type": "library",
        # A lock may name the same jar, so the package URL might not be unique.
        "bom-ref": f"{BUNDLING_PACKAGE}/{jar.artifact}-{jar.version}.jar",
        "name": jar.artifact,
        "version": jar.version,
        "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
        **named,
    }


def _licences(expression: str) -> list[dict[str, object]]:
    if " " in expression:
        return [{"expression": expression}]
    return [{"license": {"id": expression}}]
