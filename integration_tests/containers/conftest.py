"""One set of secrets and images for all tests in containers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from services.embedded.state_directory import ROOT


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Passwords, certificates and keys, made as an operator makes them."""
    directory = tmp_path_factory.mktemp("secrets")
    script = ROOT / "docker" / "make-secrets"
    subprocess.run([str(script), str(directory)], check=True, capture_output=True)
    return directory
