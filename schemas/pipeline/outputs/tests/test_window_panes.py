"""When a window has a row, and what it holds: read, and refused on its line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import (
    Early,
    Panes,
    PipelineError,
    Window,
    from_json,
    load_pipeline,
    pipeline_definition_json,
)
from tallyweir.schemas.pipeline.outputs.window import EarlyPanes

_FILE = """\
pipeline: p
source: {topic: t, schema: page_view.v1, event_id: event_id, event_time: viewed_at, watermark_delay: 1 s}
outputs:
  - window:
      table: w
      aggregate: {views: count(*)}
      %s
"""  # noqa: E501 - the lines are counted below


def _write(directory: Path, keys: str) -> Path:
    file = directory / "p.yaml"
    file.write_text(_FILE % keys.replace("; ", "\n      "))
    return file


@pytest.mark.parametrize(
    ("written", "early", "panes"),
    [
        ("fixed: 1 hour", Early.BATCH, Panes.ACCUMULATING),
        ("fixed: 1 hour; early: batch", Early.BATCH, Panes.ACCUMULATING),
        ("fixed: 1 hour; early: off", Early.OFF, Panes.ACCUMULATING),
        ('fixed: 1 hour; early: "off"', Early.OFF, Panes.ACCUMULATING),
        (
            "fixed: 1 hour; early: every 10 seconds; panes: discarding",
            timedelta(seconds=10),
            Panes.DISCARDING,
        ),
        ("session: {gap: 1 s}; early: off", Early.OFF, Panes.ACCUMULATING),
    ],
)
def test_panes_are_read_and_come_back_from_the_ledger(
    tmp_path: Path, written: str, early: EarlyPanes, panes: Panes
) -> None:
    """The file says what Python says, and so does the definition."""
    pipeline = load_pipeline(_write(tmp_path, written))
    (output,) = pipeline.outputs
    assert isinstance(output, Window)
    assert (early, panes) == (output.early, output.panes)
    assert pipeline == from_json(pipeline_definition_json(pipeline))


@pytest.mark.parametrize(
    ("written", "line", "code", "words"),
    [
        ("fixed: 1 s; early: sometimes", 8, "PIPELINE_VALUE", "every 10 seconds"),
        ("fixed: 1 s; early: every hour", 8, "PIPELINE_VALUE", "whole number"),
        ("fixed: 1 s; early: 10 seconds", 8, "PIPELINE_VALUE", "every 10 seconds"),
        ("fixed: 1 s; early: every 0 s", 8, "PIPELINE_DURATION", "zero"),
        ("fixed: 1 s; panes: discard", 8, "PIPELINE_VALUE", "Write discarding."),
        (
            "session: {gap: 1 s}; early: every 1 s",
            8,
            "PIPELINE_VALUE",
            "grows or merges",
        ),
        ("session: {gap: 1 s}; panes: discarding", 8, "PIPELINE_VALUE", "belong to it"),
    ],
)
def test_panes_that_cannot_be_are_refused(
    tmp_path: Path, written: str, line: int, code: str, words: str
) -> None:
    """Each with its line, and with what to write instead."""
    with pytest.raises(PipelineError) as caught:
        load_pipeline(_write(tmp_path, written))
    assert code == caught.value.code
    assert words in str(caught.value)
    assert f"p.yaml:{line}" in str(caught.value)


def test_the_name_of_a_view_of_metrics_comes_back_from_the_ledger(
    tmp_path: Path,
) -> None:
    """And no table of the pipeline may have it."""
    pipeline = load_pipeline(_write(tmp_path, "fixed: 1 hour; metrics: m"))
    (output,) = pipeline.outputs
    assert isinstance(output, Window)
    assert "m" == output.metrics
    assert pipeline == from_json(pipeline_definition_json(pipeline))
    with pytest.raises(PipelineError) as raised:
        load_pipeline(_write(tmp_path, "fixed: 1 hour; metrics: public.W"))
    assert "PIPELINE_DUPLICATE_NAME" in str(raised.value)
