"""Jupyter in an environment of its own, whose kernels also find our packages."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

from services.local.embedded.servers import embedded_postgres
from services.local.embedded.state_directory import state_directory
from services.local.embedded.virtual_environment import NOTEBOOK_LOCK, install
from services.process.endpoints import Endpoints, child_environment
from sinks.settings import SCRATCH_DSN_VARIABLE

_ROOT = 0


def install_jupyter() -> Path:
    """Install it, unless it is there; return the environment's Python.

    Raises:
        SetUpError: pip failed.
    """
    # Python makes no environment behind a link, which tests have here.
    environment = (state_directory() / "notebook").resolve()
    install(NOTEBOOK_LOCK, venv=environment)
    python = environment / "bin" / "python"
    asked = [str(python), "-c", "import sysconfig as s; print(s.get_path('purelib'))"]
    packages = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    # Ours come behind Jupyter's own; what both have is there in one version.
    ours = f"{sysconfig.get_path('purelib')}\n"
    (Path(packages.strip()) / "tallyweir.pth").write_text(ours, "utf-8")
    return python


def notebook_environment(endpoints: Endpoints) -> dict[str, str]:
    """Return the environment of a kernel: ours, and a server for scratch databases.

    The embedded one, which is started, so that nothing is made on a server of yours.

    Raises:
        TallyweirError: It could not be started.
    """
    server = embedded_postgres()
    server.start()
    return child_environment(endpoints) | {SCRATCH_DSN_VARIABLE: server.dsn}


def jupyter_command(python: Path, notebook: Path) -> list[str]:
    """Return the command that shows a notebook to whoever has Jupyter's token."""
    command = [
        str(python),
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={notebook.parent}",
    ]
    if os.geteuid() == _ROOT:
        # Else Jupyter refuses to start.
        command.append("--allow-root")
    return [*command, notebook.name]
