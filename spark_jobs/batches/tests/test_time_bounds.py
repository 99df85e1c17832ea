"""How far from the clock event times may be."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import Pipeline, PipelineError, load_pipeline
from tallyweir.schemas.pipeline.definition_json import (
    definition_hash,
    from_json,
    pipeline_definition_json,
)
from tallyweir.spark_jobs.batches.stage_jobs import time_bounds

_FILE = """
pipeline: p
source:
  topic: t
  schema: flight_departure.v1
  event_id: event_id
  event_time: scheduled_at
  watermark_delay: 2 hours
{bounds}
outputs:
  - append: {{table: a}}
deduplicate: {{horizon: {horizon}}}
"""
_DAY_US = 86_400 * 1_000_000


def _load(folder: Path, *bounds: str, horizon: str = "7 days") -> Pipeline:
    path = folder / "p.yaml"
    lines = "\n".join(f"  {bound}" for bound in bounds)
    path.write_text(_FILE.format(bounds=lines, horizon=horizon))
    return load_pipeline(path)


def test_both_bounds_are_counted_from_the_clock(tmp_path: Path) -> None:
    """Of the past there is none unless the pipeline says so."""
    source = _load(tmp_path).source
    assert (None, 11 * _DAY_US) == time_bounds(source, 10 * _DAY_US)
    source = _load(tmp_path, "past_bound: 9 days", "future_bound: 2 days").source
    assert (_DAY_US, 12 * _DAY_US) == time_bounds(source, 10 * _DAY_US)


def test_a_past_bound_is_kept_in_the_ledger(tmp_path: Path) -> None:
    """Without one the definition is what it was before there could be one."""
    bounded = _load(tmp_path, "past_bound: 90 days")
    assert timedelta(days=90) == bounded.source.past_bound
    assert bounded == from_json(pipeline_definition_json(bounded))
    free = _load(tmp_path)
    assert "past_bound" not in pipeline_definition_json(free)["source"]
    assert definition_hash(free) != definition_hash(bounded)


@pytest.mark.parametrize("bound", ["0 s", "-1 day", "soon"])
def test_a_past_bound_is_a_duration(tmp_path: Path, bound: str) -> None:
    """No event would be alive otherwise."""
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, f"past_bound: {bound}")
    assert "past_bound" in str(caught.value)


@pytest.mark.parametrize(
    ("horizon", "bound", "most_s"),
    [("7 days", "657 days", 56_700_000), ("10 minutes", "1 day", 56_250)],
)
def test_a_future_bound_has_buckets_that_there_is_room_for(
    tmp_path: Path, horizon: str, bound: str, most_s: int
) -> None:
    """Each event that a wrong clock has dated could make a table."""
    _load(tmp_path, f"future_bound: {most_s} s", horizon=horizon)
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, f"future_bound: {bound}", horizon=horizon)
    (problem,) = caught.value.problems
    assert "PIPELINE_FUTURE_BOUND" == problem.code
    assert f"at most {most_s} seconds" in problem.fix
