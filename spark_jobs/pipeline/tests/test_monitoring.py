"""What the monitor may show of a pipeline, in pipeline files and in the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.pipeline import (
    Monitoring,
    Pipeline,
    PipelineError,
    from_json,
    load_pipeline,
    pipeline_definition_json,
)
from spark_jobs.pipeline.tests.test_dead_letter_limit import _FILE


def _load(folder: Path, section: str) -> Pipeline:
    path = folder / "p.yaml"
    path.write_text(f"{_FILE}{section}\n")
    return load_pipeline(path)


def test_keys_are_hidden_unless_a_file_says_otherwise(tmp_path: Path) -> None:
    """And no pipeline seems changed by an upgrade."""
    pipeline = _load(tmp_path, "")
    assert not pipeline.monitor.show_keys
    assert "monitor" not in pipeline_definition_json(pipeline)


def test_that_keys_are_shown_is_kept_in_the_ledger(tmp_path: Path) -> None:
    """Whoever asks who may see them finds it there."""
    pipeline = _load(tmp_path, "monitor: {show_keys: true}")
    assert pipeline.monitor == Monitoring(show_keys=True)
    assert pipeline == from_json(pipeline_definition_json(pipeline))


def test_an_unknown_key_of_the_section_is_refused(tmp_path: Path) -> None:
    """A misspelt one would hide or show what nobody meant to."""
    with pytest.raises(PipelineError, match="show_keys"):
        _load(tmp_path, "monitor: {show_key: true}")
