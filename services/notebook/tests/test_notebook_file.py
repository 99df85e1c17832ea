"""The notebook is made beside a slice, once, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tallyweir.services.notebook.jupyter import NOTEBOOK, write_notebook
from tallyweir.sinks.protocol.errors import ConfigurationError


def test_a_notebook_is_not_written_over(tmp_path: Path) -> None:
    """It is the user's from then on."""
    (tmp_path / "slice.json").write_text("{}")
    path = write_notebook(tmp_path)
    cells = json.loads(path.read_text())["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells) > 0
    path.write_text("mine")
    assert write_notebook(tmp_path) == path
    assert path.read_text() == "mine"


def test_a_directory_without_a_slice_gets_none(tmp_path: Path) -> None:
    """It is some folder of the user's."""
    with pytest.raises(ConfigurationError, match="SLICE_MISSING"):
        write_notebook(tmp_path)
    assert not (tmp_path / NOTEBOOK).exists()
