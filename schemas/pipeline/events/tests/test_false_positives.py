"""The share of new IDs that a filter may let pass, in pipeline files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import (
    Deduplicate,
    Pipeline,
    PipelineError,
    definition_hash,
    from_json,
    load_pipeline,
    pipeline_definition_json,
)

_FILE = """\
pipeline: p
source:
  topic: t
  schema: flight_departure.v1
  event_id: event_id
  event_time: scheduled_at
  watermark_delay: 2 hours
outputs:
  - append: {table: a}
"""


def _load(folder: Path, deduplicate: str) -> Pipeline:
    path = folder / "p.yaml"
    path.write_text(f"{_FILE}{deduplicate}\n")
    return load_pipeline(path)


@pytest.mark.parametrize(
    ("written", "rate"),
    [("0.01", 0.01), ("1e-4", 0.0001), ("0.00001", 0.00001), ("0.1", 0.1)],
)
def test_a_rate_is_read_and_kept_in_the_ledger(
    tmp_path: Path, written: str, rate: float
) -> None:
    """The resolver makes the filters of chunks by it."""
    pipeline = _load(tmp_path, f"deduplicate: {{false_positives: {written}}}")
    assert Deduplicate(false_positives=rate) == pipeline.deduplicate
    kept = pipeline_definition_json(pipeline)
    assert rate == kept["deduplicate"]["false_positives"]
    assert pipeline == from_json(kept)


def test_saying_the_default_changes_nothing(tmp_path: Path) -> None:
    """The hash in the ledger included."""
    said = _load(tmp_path, "deduplicate: {false_positives: 0.001}")
    silent = _load(tmp_path, "")
    assert said == silent
    assert definition_hash(said) == definition_hash(silent)
    assert "false_positives" not in pipeline_definition_json(said)["deduplicate"]


@pytest.mark.parametrize(
    ("rate", "code"),
    [
        ("1", "PIPELINE_RATE"),
        ("0.000001", "PIPELINE_RATE"),
        ("0", "PIPELINE_RATE"),
        ("nan", "PIPELINE_RATE"),
        (".nan", "PIPELINE_VALUE"),
        ("few", "PIPELINE_VALUE"),
        ("[0.1]", "PIPELINE_VALUE"),
        ("true", "PIPELINE_VALUE"),
    ],
)
def test_a_rate_that_makes_no_sense_is_refused(
    tmp_path: Path, rate: str, code: str
) -> None:
    """A filter that lets everything pass, or nothing, helps nobody."""
    with pytest.raises(PipelineError) as raised:
        _load(tmp_path, f"deduplicate: {{false_positives: {rate}}}")
    assert [code] == [problem.code for problem in raised.value.problems]
