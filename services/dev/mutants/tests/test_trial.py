"""A mutant is killed by the test that it names, and by nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tallyweir.services.dev.mutants.trial import (
    Mutant,
    choose,
    read_mutants,
    try_mutants,
)

_CODE = "def is_adult(age):\n    return age >= 18\n"
_TESTS = """\
from code_under_test import is_adult

def test_the_bound_is_inclusive():
    assert is_adult(18)

def test_a_child_is_none():
    assert not is_adult(7)

def test_that_fails_anyway():
    assert False
"""
_BOUND = "test_ages.py::test_the_bound_is_inclusive"
_CHILD = "test_ages.py::test_a_child_is_none"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A source tree with one rule and its tests."""
    (tmp_path / "code_under_test.py").write_text(_CODE)
    (tmp_path / "test_ages.py").write_text(_TESTS)
    (tmp_path / ".venv").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def _mutant(folder: Path, name: str, test: str, was: str = ">= 18") -> Mutant:
    text = (
        f"The bound is exclusive.\n\nKilled-by: {test}\n\n"
        "--- a/code_under_test.py\n+++ b/code_under_test.py\n"
        "@@ -1,2 +1,2 @@\n def is_adult(age):\n"
        f"-    return age {was}\n+    return age > 18\n"
    )
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.patch").write_text(text)
    (found,) = (one for one in read_mutants(folder) if one.name == name)
    return found


def _tried(root: Path, *mutants: Mutant) -> dict[str, str | None]:
    told: dict[str, str | None] = {}
    alive = try_mutants(
        mutants,
        root,
        copies=2,
        environment=os.environ,
        tell=lambda mutant, reason: told.update({mutant.name: reason}),
    )
    assert alive == sum(reason is not None for reason in told.values())
    return told


@pytest.mark.slow
def test_a_mutant_is_killed_or_said_to_be_alive(root: Path, tmp_path: Path) -> None:
    """One that survives, and one whose patch applies no more, are told apart."""
    folder = tmp_path / "patches"
    told = _tried(
        root,
        _mutant(folder, "killed", _BOUND),
        _mutant(folder, "survives", _CHILD),
        _mutant(folder, "moved", _BOUND, was="> 17"),
    )

    assert told["killed"] is None
    assert told["survives"] == f"it survives {_CHILD}"
    assert str(told["moved"]).startswith("the patch does not apply")
    assert (root / "code_under_test.py").read_text() == _CODE


@pytest.mark.slow
def test_a_test_that_fails_without_a_mutant_kills_none(
    root: Path, tmp_path: Path
) -> None:
    """Its failure would prove nothing."""
    mutant = _mutant(
        tmp_path / "patches", "any", "test_ages.py::test_that_fails_anyway"
    )

    told = _tried(root, mutant, _mutant(tmp_path / "patches", "fine", _BOUND))
    assert str(told["any"]).startswith("its test fails without it too")
    assert told["fine"] is None


def test_mutants_are_chosen_by_the_beginnings_of_their_names(tmp_path: Path) -> None:
    """Without a name, all whose tests need no server."""
    fast, other = _mutant(tmp_path, "fence-a", _BOUND), _mutant(tmp_path, "b", _CHILD)
    served = _mutant(tmp_path, "fence-b", "integration_tests/test_x.py::test_y")
    every = read_mutants(tmp_path)

    assert choose(every, ["fence"], all_=False) == [fast, served]
    assert choose(every, [], all_=False) == [other, fast]
    assert choose(every, [], all_=True) == every
    with pytest.raises(ValueError, match="no mutant"):
        choose(every, ["fense"], all_=False)


def test_each_patch_says_what_it_breaks_and_names_one_test() -> None:
    """Of each the first line is the mistake, and its test is there."""
    root = Path(__file__).parents[4]
    for mutant in read_mutants():
        words, *_ = mutant.patch.read_text().splitlines()
        assert words.endswith("."), mutant.name
        file, name, *_ = mutant.test.split("[")[0].split("::")
        assert f"def {name}(" in (root / file).read_text(), mutant.name
