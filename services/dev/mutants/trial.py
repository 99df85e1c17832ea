"""Tries mutants on copies of the source tree."""

from __future__ import annotations

import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tallyweir.services.dev.mutants.mutant import Mutant
from tallyweir.services.dev.tree_copy import copy_tree

#: Exit codes of pytest.
_PASSED, _FAILED = 0, 1
_TRIAL_TIMEOUT_S = 900.0
_OUTPUT_LINES = 15


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
            return f"its test fails without it too:\n{_end_of(unchanged.stdout)}"
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
    return f"pytest ended with {done.returncode}:\n{_end_of(done.stdout)}"


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


def _end_of(output: str) -> str:
    return "\n".join(output.splitlines()[-_OUTPUT_LINES:])


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
