"""Reads mutants from their patches, and tries them on copies of the source tree."""

from __future__ import annotations

import queue
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tallyweir.services.dev.tree_copy import copy_tree
from tallyweir.services.local.embedded.virtual_environment import last_lines

PATCHES = Path(__file__).with_name("patches")

_KILLED_BY = re.compile(r"^Killed-by: (\S.*)$", re.MULTILINE)
#: Tests in this folder start servers of their own.
_WITH_SERVERS = "integration_tests/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One deliberate mistake.

    Attributes:
        name: The patch's name without ``.patch``.
        patch: The file.
        test: Identifier of the test that must fail, as pytest takes it.
    """

    name: str
    patch: Path
    test: str

    @property
    def needs_servers(self) -> bool:
        """Whether its test starts a broker and a database."""
        return self.test.startswith(_WITH_SERVERS)


def read_mutants(folder: Path = PATCHES) -> list[Mutant]:
    """Read the mutants of a folder, by name.

    Raises:
        ValueError: A patch does not name exactly one test.
    """
    found = []
    for patch in sorted(folder.glob("*.patch")):
        tests = _KILLED_BY.findall(patch.read_text("utf-8"))
        if len(tests) != 1:
            raise ValueError(f"{patch}: it needs one line Killed-by: TEST")
        found.append(Mutant(name=patch.stem, patch=patch, test=tests[0]))
    return found


def choose(mutants: list[Mutant], names: Sequence[str], *, all_: bool) -> list[Mutant]:
    """Choose mutants by name; without names, those whose tests need no server.

    Args:
        mutants: All of them.
        names: Of mutants, or beginnings of names.
        all_: Also take those whose tests start servers.

    Raises:
        ValueError: No mutant's name begins so.
    """
    for name in names:
        if not any(mutant.name.startswith(name) for mutant in mutants):
            raise ValueError(f"no mutant's name begins with {name}")
    if names:
        return [m for m in mutants if m.name.startswith(tuple(names))]
    return [m for m in mutants if all_ or not m.needs_servers]


#: Exit codes of pytest.
_PASSED, _FAILED = 0, 1
_TRIAL_TIMEOUT_S = 900.0


def try_mutants(
    mutants: Sequence[Mutant],
    root: Path,
    *,
    copies: int,
    environment: Mapping[str, str],
    tell: Callable[[Mutant, str | None], None],
) -> int:
    """Apply each mutant to a copy of the tree, and run its test there.

    Args:
        mutants: The mutants to try.
        root: The source tree; the copies have its tracked files and its changes.
        copies: How many mutants are tried at the same time.
        environment: The environment of the tests.
        tell: Called after each trial, with the reason if the mutant was not killed.

    Returns:
        How many mutants were not killed: their tests passed, or their patches do not
        apply, or their tests could not run, or failed before any mistake was made.
    """
    with _copied_trees(root, copies) as trees:
        idle: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for tree in trees:
            idle.put(tree)
        # If all pass together, none need be tried alone without its mutant.
        tests = sorted({mutant.test for mutant in mutants})
        all_pass = _pytest(tests, trees[0], environment).returncode == _PASSED

        def attempt(mutant: Mutant) -> bool:
            tree = idle.get()
            try:
                reason = _why_alive(mutant, tree, environment, passes=all_pass)
            finally:
                idle.put(tree)
            tell(mutant, reason)
            return reason is None

        with ThreadPoolExecutor(copies) as pool:
            killed = list(pool.map(attempt, mutants))
    return killed.count(False)


def _why_alive(
    mutant: Mutant, tree: Path, environment: Mapping[str, str], *, passes: bool
) -> str | None:
    if not passes:
        unchanged = _pytest([mutant.test], tree, environment)
        if unchanged.returncode != _PASSED:
            return f"its test fails without it too:\n{last_lines(unchanged.stdout)}"
    applied = _patch(mutant, tree)
    if applied.returncode != 0:
        return f"the patch does not apply:\n{applied.stderr}"
    try:
        done = _pytest([mutant.test], tree, environment)
    finally:
        assert _patch(mutant, tree, "--reverse").returncode == 0, mutant.name
    if done.returncode == _FAILED:
        return None
    if done.returncode == _PASSED:
        return f"it survives {mutant.test}"
    return f"pytest ended with {done.returncode}:\n{last_lines(done.stdout)}"


def _patch(
    mutant: Mutant, tree: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "apply", "--recount", *options, str(mutant.patch)],  # noqa: S607
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )


def _pytest(
    tests: Sequence[str], tree: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    plain = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly")
    return subprocess.run(
        [sys.executable, "-P", "-m", "pytest", *plain, *tests],
        cwd=tree,
        env={**environment, "PYTHONPATH": f"{tree}/src:{tree}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_TRIAL_TIMEOUT_S * len(tests),
    )


@contextmanager
def _copied_trees(root: Path, copies: int) -> Iterator[list[Path]]:
    with tempfile.TemporaryDirectory(prefix="tallyweir-mutants-") as temporary:
        trees = [Path(temporary) / str(number) for number in range(copies)]
        first, *others = trees
        names = copy_tree(root, first)
        (first / ".venv").symlink_to(root / ".venv")
        # A changed file may have the old one's size and second; its hash tells.
        hashed = ("-q", "--invalidation-mode", "checked-hash")
        packages = sorted({name.split("/")[0] for name in names if "/" in name})
        compiling = [sys.executable, "-m", "compileall", *hashed, *packages]
        subprocess.run(compiling, cwd=first, check=True)
        for other in others:
            shutil.copytree(first, other, symlinks=True)
        yield trees
