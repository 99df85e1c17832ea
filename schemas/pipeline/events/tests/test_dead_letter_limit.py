"""The limit of dead letters, in pipeline files and in the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import (
    DeadLetterLimit,
    Pipeline,
    PipelineError,
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


def _load(folder: Path, limit: str) -> Pipeline:
    path = folder / "p.yaml"
    path.write_text(f"{_FILE}{limit}\n")
    return load_pipeline(path)


@pytest.mark.parametrize(
    ("written", "limit"),
    [
        ("{share: 0.05}", DeadLetterLimit(share=0.05, records=1_000)),
        ("{share: 0, records: 1}", DeadLetterLimit(share=0.0, records=1)),
    ],
)
def test_a_limit_is_read_and_kept_in_the_ledger(
    tmp_path: Path, written: str, limit: DeadLetterLimit
) -> None:
    """Whoever asks later why a pipeline paused itself finds it there."""
    pipeline = _load(tmp_path, f"dead_letter_limit: {written}")
    assert limit == pipeline.dead_letter_limit
    assert pipeline == from_json(pipeline_definition_json(pipeline))


def test_without_a_limit_the_ledger_says_what_it_always_did(tmp_path: Path) -> None:
    """So that no pipeline seems changed by an upgrade."""
    pipeline = _load(tmp_path, "")
    assert pipeline.dead_letter_limit is None
    assert "dead_letter_limit" not in pipeline_definition_json(pipeline)


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("{share: 1}", "PIPELINE_LIMIT"),
        ("{share: -0.1}", "PIPELINE_LIMIT"),
        ("{share: nan}", "PIPELINE_LIMIT"),
        ("{share: 0.1, records: 0}", "PIPELINE_LIMIT"),
        ("{share: 0.1, records: many}", "PIPELINE_VALUE"),
        ("{records: 100}", "PIPELINE_MISSING_KEY"),
        ("{share: 0.1, rows: 100}", "PIPELINE_UNKNOWN_KEY"),
        ("0.1", "PIPELINE_VALUE"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(
    tmp_path: Path, limit: str, code: str
) -> None:
    """A share of everything would never pause."""
    with pytest.raises(PipelineError) as raised:
        _load(tmp_path, f"dead_letter_limit: {limit}")
    assert [code] == [problem.code for problem in raised.value.problems]
