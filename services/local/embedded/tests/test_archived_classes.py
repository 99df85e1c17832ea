"""An archive of classes only makes a start faster; it never stands in its way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tallyweir.services.local.embedded.java import class_archive


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that stands where Spark does; it counts how often it runs."""
    monkeypatch.setenv("TALLYWEIR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    package = tmp_path / "tallyweir" / "spark_jobs" / "engine"
    package.mkdir(parents=True)
    for folder in (package.parent.parent, package.parent, package):
        (folder / "__init__.py").touch()
    return package / "class_archive.py"


_COUNTED = "import sys; open('runs', 'a').write('x'); "


def test_an_archive_is_made_once(writer: Path, tmp_path: Path) -> None:
    """Every later start finds it."""
    writer.write_text(f"{_COUNTED}open(sys.argv[1], 'w').write('classes')")
    first = class_archive(os.environ)

    assert first is not None
    assert first.read_text() == "classes"
    assert class_archive(os.environ) == first
    assert (tmp_path / "state" / "class_archive" / "runs").read_text() == "x"


@pytest.mark.parametrize("end", ["sys.exit(1)", "pass"], ids=["fails", "makes none"])
def test_where_none_can_be_made_drivers_start_without(
    writer: Path, tmp_path: Path, end: str
) -> None:
    """That is tried once, not at every start."""
    writer.write_text(f"{_COUNTED}{end}")

    assert class_archive(os.environ) is None
    assert class_archive(os.environ) is None
    assert (tmp_path / "state" / "class_archive" / "runs").read_text() == "x"
