"""Programs that a machine may have, and that no test installs."""

from __future__ import annotations

import os
import shutil

import pytest

from services.embedded.state_directory import ROOT


def installed_program(name: str, *, otherwise: str) -> str:
    """Return where a program is: on PATH or in ``.tallyweir/bin``.

    Where it is in neither, the test is skipped and says so.

    Args:
        name: Of the program.
        otherwise: What stays untested without it, and how to get it.
    """
    places = os.pathsep.join(
        [os.environ.get("PATH", ""), str(ROOT / ".tallyweir" / "bin")]
    )
    found = shutil.which(name, path=places)
    if found is None:
        pytest.skip(f"NOT TESTED: {otherwise}")
    return found
