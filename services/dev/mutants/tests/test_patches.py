"""The patches of mutants fit the code that they break."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tallyweir.services.dev.mutants.trial import PATCHES, read_mutants

_ROOT = Path(__file__).resolve().parents[4]


def test_every_patch_applies_and_names_a_test_that_exists() -> None:
    """A change of the code takes along the patches of its mutants."""
    wrong = []
    mutants = read_mutants(PATCHES)
    assert len(mutants) > 200
    for mutant in mutants:
        checked = subprocess.run(
            ["git", "apply", "--recount", "--check", mutant.patch],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        wrong += [f"{mutant.name}: {checked.stderr}"] if checked.returncode else []
        path, _, name = mutant.test.partition("::")
        file = _ROOT / path
        function = name.partition("[")[0].rpartition("::")[2]
        if not file.exists() or f"def {function}(" not in file.read_text("utf-8"):
            wrong.append(f"{mutant.name}: there is no test {mutant.test}")
    assert wrong == []
