"""Runs Jupyter with kernels that find our packages.

A checkout has it in an environment of its own; where pip has installed Tallyweir, it is
in the same environment, as the extra ``notebook``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from tallyweir.services.local.embedded.extras import package_folder
from tallyweir.services.local.embedded.servers import embedded_postgres
from tallyweir.services.local.embedded.state_directory import (
    is_checkout,
    state_directory,
)
from tallyweir.services.local.embedded.virtual_environment import NOTEBOOK_LOCK, install
from tallyweir.services.process.endpoints import Endpoints, child_environment
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
