"""The launcher chooses a Python that the locks are for, or says that there is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tallyweir.services.local.embedded.state_directory import ROOT

#: A Python that says it were of another version, and does nothing but answer.
_PYTHON = """#!{shell}
[ "$1" = -c ] || {{ echo "chosen: $0"; exit 3; }}
exec {python} -c 'import sys; sys.version_info = {version}; exec(sys.argv[1])' "$2"
"""
_CHOSEN = 3


def _start(
    directory: Path, pythons: dict[str, tuple[int, int]]
) -> subprocess.CompletedProcess[str]:
    """Start a launcher that has no environment yet, with these Pythons on its PATH."""
    launcher = directory / "tallyweir"
    shutil.copy(ROOT / "tallyweir", launcher)
    path = directory / "bin"
    path.mkdir()
    for name in ("cmp", "dirname"):
        (path / name).symlink_to(shutil.which(name) or "")
    shell = shutil.which("sh")
    for name, (major, minor) in pythons.items():
        program = path / name
        version = f"({major}, {minor}, 0, {chr(34)}final{chr(34)}, 0)"
        program.write_text(
            _PYTHON.format(shell=shell, python=sys.executable, version=version)
        )
        program.chmod(0o755)
    return subprocess.run(
        [str(shell), str(launcher), "status"],
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("minor", [11, 12, 13])
def test_a_python_that_the_locks_are_for_is_chosen(minor: int, tmp_path: Path) -> None:
    """Whatever it is called."""
    done = _start(tmp_path, {"python3": (3, minor)})
    assert _CHOSEN == done.returncode, done.stderr
    assert f"chosen: {tmp_path}/bin/python3\n" == done.stdout


@pytest.mark.parametrize("minor", [10, 14])
def test_an_older_or_newer_python_is_refused(minor: int, tmp_path: Path) -> None:
    """Before anything is installed for it."""
    done = _start(tmp_path, {"python3": (3, minor)})
    assert 78 == done.returncode
    assert done.stderr.startswith("PYTHON_MISSING\n")
    assert "" == done.stdout


def test_a_python_that_is_refused_hides_no_other(tmp_path: Path) -> None:
    """As on a machine whose python3 is newer than what the locks are for."""
    done = _start(tmp_path, {"python3": (3, 14), "python3.12": (3, 12)})
    assert f"chosen: {tmp_path}/bin/python3.12\n" == done.stdout
