"""Kinds of windows in a pipeline file: read, and refused on their line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import (
    Fixed,
    PipelineError,
    Session,
    Sliding,
    Window,
    load_pipeline,
)
from tallyweir.schemas.pipeline.outputs.window import WindowKind

_FILE = """\
pipeline: p
source: {topic: t, schema: page_view.v1, event_id: event_id, event_time: viewed_at, watermark_delay: 1 s}
outputs:
  - window:
      table: w
      aggregate: {views: count(*)}
      %s
"""  # noqa: E501 - the lines are counted below


def _load(directory: Path, kind: str) -> WindowKind:
    file = directory / "p.yaml"
    file.write_text(_FILE % kind.replace("; ", "\n      "))
    (output,) = load_pipeline(file).outputs
    assert isinstance(output, Window)
    return output.windows


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("fixed: 1 hour", Fixed(size=timedelta(hours=1))),
        (
            "fixed: 1 day; time_zone: Europe/Berlin",
            Fixed(size=timedelta(days=1), time_zone="Europe/Berlin"),
        ),
        (
            "sliding: {size: 10 minutes, every: 2 minutes}",
            Sliding(size=timedelta(minutes=10), every=timedelta(minutes=2)),
        ),
        ("session: {gap: 30 s}", Session(gap=timedelta(seconds=30))),
    ],
)
def test_each_kind_is_read(tmp_path: Path, written: str, expected: WindowKind) -> None:
    """The file says what Python says."""
    assert expected == _load(tmp_path, written)


@pytest.mark.parametrize(
    ("written", "line", "code", "words"),
    [
        ("by: [page]", 4, "PIPELINE_MISSING_KEY", "fixed, sliding and session"),
        ("fixed: 1 h; session: {gap: 1 s}", 8, "PIPELINE_VALUE", "one kind"),
        ("sessions: {gap: 1 s}", 7, "PIPELINE_UNKNOWN_KEY", "session"),
        ("session: {gp: 1 s}", 7, "PIPELINE_UNKNOWN_KEY", "gap"),
        ("session: {gap: 0 s}", 7, "PIPELINE_DURATION", "zero"),
        ("session: {gap: 1 s}; time_zone: UTC", 8, "PIPELINE_VALUE", "time_zone"),
        ("sliding: {size: 1 h, evry: 1 h}", 7, "PIPELINE_UNKNOWN_KEY", "every"),
        ("sliding: {size: 1 h, every: 2 h}", 7, "PIPELINE_VALUE", "longer than"),
        ("sliding: {size: 1 d, every: 1 s}", 7, "PIPELINE_VALUE", "1000 windows"),
        (
            "sliding: {size: 1 h, every: 7 m}; time_zone: Europe/Berlin",
            7,
            "PIPELINE_VALUE",
            "divide",
        ),
        ("fixed: 1 d; time_zone: Europe/Berln", 8, "PIPELINE_VALUE", "Europe/Berlin"),
    ],
)
def test_a_mistake_is_found_on_its_line(
    tmp_path: Path, written: str, line: int, code: str, words: str
) -> None:
    """One error with the place, the reason and the remedy."""
    with pytest.raises(PipelineError) as raised:
        _load(tmp_path, written)
    text = str(raised.value)
    assert code in text
    assert words in text
    assert f"p.yaml:{line}" in text
