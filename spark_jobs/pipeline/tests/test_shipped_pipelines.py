"""The pipelines that come with Tallyweir."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.pipeline import load_pipeline

_SHIPPED = Path(__file__).parents[2] / "pipelines"
_FILES = [
    file
    for file in sorted(_SHIPPED.glob("*"))
    if file.suffix in {".yaml", ".py"} and not file.name.endswith(".template.yaml")
]


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.name)
def test_every_shipped_pipeline_is_valid(file: Path) -> None:
    """Against its contract as well; it is named as its file is."""
    assert load_pipeline(file).name == file.stem
