"""A copy of the source tree has what a change has, and nothing that git ignores."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tallyweir.services.dev.tree_copy import copy_tree


def test_a_copy_has_links_and_new_files_and_nothing_ignored(tmp_path: Path) -> None:
    """A link to a folder is copied as a link, and leads into the copy."""
    root, copy = tmp_path / "root", tmp_path / "copy"
    for name in ("rooms/one.py", "src/init.py", "gone.py", ".gitignore"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("kept*\n")
    (root / "src" / "rooms").symlink_to("../rooms")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    (root / "gone.py").unlink()
    (root / "new.py").touch()
    (root / "kept.log").touch()
    names = copy_tree(root, copy)
    assert {".gitignore", "new.py", "rooms/one.py", "src/init.py", "src/rooms"} == set(
        names
    )
    assert (copy / "src" / "rooms").is_symlink()
    assert (copy / "src" / "rooms" / "one.py").resolve() == copy / "rooms" / "one.py"
    assert not (copy / "kept.log").exists()
