"""``sbom``: lists the parts of Tallyweir with their licences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say_table


@command("tallyweir sbom", "tallyweir sbom --json-file tallyweir.cdx.json")
def sbom(
    json_file: Annotated[
        Path | None,
        typer.Option(help="Also write a CycloneDX 1.6 document to this file."),
    ] = None,
) -> None:
    """List every locked part with its licence.

    Parts and hashes come from the lock files, licences from the installed packages
    and licences.toml. Exit code 78 when a licence is unknown or not on the list of
    that file; then nothing is written.
    """
    import tomllib

    from tallyweir.services.dev.sbom.components import installed_jars, read_components
    from tallyweir.services.dev.sbom.cyclonedx import cyclonedx
    from tallyweir.services.dev.sbom.licences import LicenceRules, check_licences
    from tallyweir.services.local.embedded.state_directory import ROOT

    components = read_components(ROOT)
    licences = check_licences(components, LicenceRules.read(ROOT))
    say_table(
        ("part", "version", "licence", "in"),
        [
            (
                f"{one.group}:{one.name}" if one.group else one.name,
                one.version,
                licences[one.purl],
                ",".join(one.locks),
            )
            for one in components
        ],
    )
    if json_file is not None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        document = cyclonedx(
            components, licences, installed_jars(), version=project["version"]
        )
        json_file.write_text(json.dumps(document, indent=2) + "\n")
        note(f"wrote {len(components)} components to {json_file}")
