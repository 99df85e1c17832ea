"""Helm, from wherever this machine can have it."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tallyweir.services.local.embedded.state_directory import ROOT

_BIN = ROOT / ".tallyweir" / "bin"
_MODULE = "helm.sh/helm/v3/cmd/helm@v3.18.6"


def find_helm() -> str:
    """Return where Helm is: on PATH, or in ``.tallyweir/bin``.

    Where it is in neither and Go is there, Go builds it into the latter, once.
    Otherwise the test is skipped and says so.
    """
    places = os.pathsep.join([os.environ.get("PATH", ""), str(_BIN)])
    found = shutil.which("helm", path=places)
    if found is not None:
        return found
    go = shutil.which("go")
    if go is not None and _build(go):
        return str(_BIN / "helm")
    pytest.skip(
        "NOT TESTED: the Helm chart, because helm is neither on PATH nor in "
        ".tallyweir/bin, and Go cannot build it; docs/kubernetes.md has more"
    )


def _build(go: str) -> bool:
    done = subprocess.run(
        [go, "install", _MODULE],
        env={**os.environ, "GOBIN": str(_BIN), "CGO_ENABLED": "0"},
        check=False,
    )
    return done.returncode == 0
