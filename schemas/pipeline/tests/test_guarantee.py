"""Which pipelines may write at least once, in files and in Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import (
    Deduplicate,
    Guarantee,
    Pipeline,
    PipelineError,
    definition_hash,
    from_json,
    load_pipeline,
    pipeline_definition_json,
)

_HEAD = """\
pipeline: p
source:
  topic: t
  schema: flight_departure.v1
  event_id: event_id
  event_time: scheduled_at
  watermark_delay: 2 hours
"""
_AT_LEAST_ONCE = _HEAD + "guarantee: at_least_once\n"
_APPEND = "outputs:\n  - append: {table: a}\n"
_WINDOW = """\
outputs:
  - append: {table: a}
  - window: {table: w, fixed: 1 hour, aggregate: {flights: count(*)}}
"""
_OUTBOX = "outputs:\n  - outbox: {topic: o, key: origin}\n"
_ELSEWHERE = "databases: {b: }\noutputs:\n  - append: {table: a, database: b}\n"
_BRANCHES = "outputs:\n  - append: {table: a, branches: 2}\n"


def _load(folder: Path, text: str) -> Pipeline:
    path = folder / "p.yaml"
    path.write_text(text)
    return load_pipeline(path)


def test_a_pipeline_writes_exactly_once_unless_it_says_otherwise(
    tmp_path: Path,
) -> None:
    """Saying so changes nothing, its hash in the ledger included."""
    silent = _load(tmp_path, _HEAD + _APPEND)
    said = _load(tmp_path, _HEAD + "guarantee: exactly_once\n" + _APPEND)
    assert Guarantee.EXACTLY_ONCE is silent.guarantee
    assert silent == said
    assert "guarantee" not in pipeline_definition_json(silent)


def test_at_least_once_remembers_no_ids(tmp_path: Path) -> None:
    """Deduplication is off without being told; the ledger keeps what was asked for."""
    pipeline = _load(tmp_path, _AT_LEAST_ONCE + _APPEND)
    assert Guarantee.AT_LEAST_ONCE is pipeline.guarantee
    assert pipeline.deduplicate is None
    told = _load(tmp_path, _AT_LEAST_ONCE + "deduplicate: off\n" + _APPEND)
    assert pipeline == told
    assert pipeline == from_json(pipeline_definition_json(pipeline))
    once = replace(pipeline, guarantee=Guarantee.EXACTLY_ONCE)
    assert definition_hash(pipeline) != definition_hash(once)


@pytest.mark.parametrize(
    ("written", "line", "words"),
    [
        ("deduplicate: {horizon: 1 day}\n" + _APPEND, 9, "drops repeats"),
        (_WINDOW, 11, "aggregates windows"),
        (_OUTBOX, 10, "sends messages"),
        (_ELSEWHERE, 11, "another database"),
        (_BRANCHES, 10, "branches"),
    ],
)
def test_what_makes_sense_only_once_is_refused_on_its_line(
    tmp_path: Path, written: str, line: int, words: str
) -> None:
    """The error says what cannot be, and the two ways out."""
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, _AT_LEAST_ONCE + written)
    (problem,) = caught.value.problems
    assert "PIPELINE_GUARANTEE" == problem.code
    assert words in problem.saw
    assert "exactly_once" in problem.fix
    assert f"p.yaml:{line}" == Path(caught.value.places[0]).name
    _load(tmp_path, _HEAD + written)


def test_an_unknown_word_is_refused_with_its_neighbour(tmp_path: Path) -> None:
    """A typing mistake must not choose for the user."""
    with pytest.raises(PipelineError, match="at_least_once"):
        _load(tmp_path, _HEAD + "guarantee: at_least_onc\n" + _APPEND)


def test_python_must_turn_deduplication_off_itself(tmp_path: Path) -> None:
    """There the default of one part does not depend on another."""
    pipeline = _load(tmp_path, _AT_LEAST_ONCE + _APPEND)
    with pytest.raises(PipelineError, match="deduplicate=None"):
        replace(pipeline, deduplicate=Deduplicate())
    with pytest.raises(PipelineError, match="Guarantee"):
        replace(pipeline, guarantee="at_least_once")  # type: ignore[arg-type]
