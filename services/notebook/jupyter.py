"""The notebook next to a captured slice, and the Jupyter that opens it.

Kernels find our packages: a checkout has Jupyter in an environment of its own; where
pip has installed Tallyweir, it is in the same environment, as the extra ``notebook``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

from tallyweir.services.local.embedded.extras import package_folder
from tallyweir.services.local.embedded.servers import embedded_postgres
from tallyweir.services.local.embedded.state_directory import (
    is_checkout,
    state_directory,
)
from tallyweir.services.local.embedded.virtual_environment import NOTEBOOK_LOCK, install
from tallyweir.services.process.endpoints import Endpoints, child_environment
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.settings import SCRATCH_DSN_VARIABLE

_ROOT = 0


def install_jupyter() -> Path:
    """Return the Python that has Jupyter; a checkout installs it if it is missing.

    Raises:
        SetUpError: pip failed.
        ConfigurationError: ``PACKAGE_MISSING``.
    """
    if not is_checkout():
        package_folder("jupyterlab")
        return Path(sys.executable)
    # Resolve links, which tests use here: Python makes no environment through one.
    environment = (state_directory() / "notebook").resolve()
    install(NOTEBOOK_LOCK, venv=environment)
    python = environment / "bin" / "python"
    asked = [str(python), "-c", "import sysconfig as s; print(s.get_path('purelib'))"]
    packages = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    # Our packages come after Jupyter's own; packages in both have one version.
    ours = f"{sysconfig.get_path('purelib')}\n"
    (Path(packages.strip()) / "tallyweir.pth").write_text(ours, "utf-8")
    return python


def notebook_environment(endpoints: Endpoints) -> dict[str, str]:
    """Return the environment of a kernel, with a server for scratch databases.

    The server is the embedded one, which this starts, so that no scratch database is
    made on a server of the user.

    Raises:
        TallyweirError: The server could not be started.
    """
    server = embedded_postgres()
    server.start()
    return child_environment(endpoints) | {SCRATCH_DSN_VARIABLE: server.dsn}


def jupyter_command(python: Path, notebook: Path) -> list[str]:
    """Return the command that serves a notebook; access needs Jupyter's token."""
    command = [
        str(python),
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={notebook.parent}",
    ]
    if os.geteuid() == _ROOT:
        # Without this option, Jupyter refuses to start as root.
        command.append("--allow-root")
    return [*command, notebook.name]


#: File name next to the slice; an existing file is never overwritten.
NOTEBOOK = "notebook.ipynb"
#: A file that every slice has.
_MANIFEST = "slice.json"
#: A cell that begins with this is text for people.
_TEXT = "#"

_CELLS = (
    """
    # A slice, stage by stage

    The records next to this notebook were captured from the pipeline's topic.
    Every stage below is the pipeline's own code on them; what it publishes goes into
    databases that are thrown away, and nothing is written anywhere else.
    """,
    """
    from tallyweir import open_slice

    captured = open_slice()
    captured.ranges()
    """,
    """
    captured.records().head()
    """,
    """
    ## Decode

    The fields of each record, and why some are no events of the contract.
    """,
    """
    stages = captured.stages()
    decoded = stages.decoded()
    decoded.head()
    """,
    """
    decoded.loc[decoded["undecodable"].notna(), ["partition", "offset", "undecodable"]]
    """,
    """
    ## Enrich

    With all that is looked up, added by the pipeline's Python, or predicted.
    """,
    """
    stages.enriched().head()
    """,
    """
    ## Validate

    What is dead by itself, with the reason, and what the pipeline filters.
    """,
    """
    validated = stages.validated()
    validated.groupby(["outcome", "reason"], dropna=False).size().rename("records")
    """,
    """
    ## Deduplicate

    Repeats within the slice; an earlier copy before it is not known here.
    """,
    """
    deduplicated = stages.deduplicated()
    deduplicated["outcome"].value_counts()
    """,
    """
    ## Outputs

    What is staged for each: rows, messages, or partials of windows.
    """,
    """
    for table, rows in stages.outputs().items():
        print(f"{table}: {len(rows)} rows staged")
        display(rows.head())
    """,
    """
    ## Dry publish

    The whole batch, transaction and all.
    """,
    """
    published = stages.dry_publish()
    print(published.receipt.summary)
    published.counts()
    """,
    """
    for table, rows in published.tables.items():
        print(f"{table}: {len(rows)} rows")
        display(rows.head())
    """,
    """
    published.put_aside()
    """,
    """
    ## Compare with what is committed

    Reads the pipeline's own tables.
    """,
    """
    comparison = stages.compare_with_committed()
    print(*comparison.notes, sep="\\n")
    comparison.summary
    """,
    """
    comparison.rows
    """,
    """
    stages.close()
    """,
)


def write_notebook(directory: Path) -> Path:
    """Write the notebook unless it exists; return its path.

    Raises:
        ConfigurationError: ``SLICE_MISSING``: the directory has no slice.
    """
    if not (directory / _MANIFEST).is_file():
        raise ConfigurationError(
            "SLICE_MISSING",
            saw=f"There is no {_MANIFEST} in {directory}.",
            why="The manifest says which records are in the slice, and of which "
            "pipeline.",
            fix="Name a directory that tallyweir notebook has created, or a pipeline.",
        )
    path = directory / NOTEBOOK
    if not path.exists():
        path.write_text(json.dumps(_notebook(), indent=1) + "\n", "utf-8")
    return path


def _notebook() -> dict[str, Any]:
    return {
        "cells": list(_cells()),
        "metadata": {
            "kernelspec": {
                "display_name": "Python 3",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cells() -> Iterator[dict[str, Any]]:
    for number, text in enumerate(_CELLS, start=1):
        source = dedent(text).strip().splitlines(keepends=True)
        cell = {"id": f"cell-{number}", "metadata": {}, "source": source}
        if source[0].startswith(_TEXT):
            yield {"cell_type": "markdown", **cell}
        else:
            not_run = {"execution_count": None, "outputs": list[Any]()}
            yield {"cell_type": "code", **cell, **not_run}
