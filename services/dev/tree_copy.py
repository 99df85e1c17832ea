"""Copies the source tree, for tests that run on a copy of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def copy_tree(root: Path, target: Path) -> list[str]:
    """Copy the files that git tracks, and new ones that it does not ignore.

    Links stay links: those of ``src`` lead to folders of the copy.

    Args:
        root: The source tree.
        target: The folder for the copy; made when missing.

    Returns:
        The names of the files, from the root.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [
        name
        for name in filter(None, listed.stdout.split("\0"))
        if (root / name).is_symlink() or (root / name).is_file()
    ]
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, target / name, follow_symlinks=False)
    return names
