"""Join outputs: how they are written, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import (
    Append,
    Guarantee,
    Join,
    JoinSide,
    Pipeline,
    PipelineError,
    Unmatched,
    Within,
    definition_hash,
    from_json,
    load_pipeline,
    pipeline_definition_json,
)
from tallyweir.schemas.pipeline.tests.pipelines import DEPARTURES

_JOIN = Join(
    table="pairs",
    on=("carrier", "flight"),
    within=timedelta(hours=2),
    left=JoinSide(where="origin = 'JFK'", select={"left_id": "event_id"}),
    right=JoinSide(where="origin = 'EWR'", select={"right_id": "event_id"}),
)
_FILE = """\
pipeline: departures
source:
  topic: flight-departures
  schema: flight_departure.v1
  event_id: event_id
  event_time: scheduled_at
  watermark_delay: 2 hours
outputs:
  - join:
      table: pairs
      on: [carrier, flight]
      within: 2 hours
      left: {where: "origin = 'JFK'", select: {left_id: event_id}}
      right: {where: "origin = 'EWR'", select: {right_id: event_id}}
"""


def _load(directory: Path, text: str) -> Pipeline:
    path = directory / "departures.yaml"
    path.write_text(text)
    return load_pipeline(path)


def test_a_file_says_which_events_are_pairs(tmp_path: Path) -> None:
    """Without more, within a bound both ways, and only pairs have rows."""
    pipeline = _load(tmp_path, _FILE)
    assert (_JOIN,) == pipeline.outputs
    assert Within(before=timedelta(hours=2), after=timedelta(hours=2)) == _JOIN.bounds
    assert not pipeline.has_code, "the function of a join is no user's"


def test_a_file_may_give_each_way_a_bound_of_its_own(tmp_path: Path) -> None:
    """What is left out is none."""
    text = _FILE.replace("2 hours\n      left", "{after: 1 hour}\n      left")
    (output,) = _load(tmp_path, text + "      unmatched: left\n").outputs
    assert isinstance(output, Join)
    assert Within(before=timedelta(), after=timedelta(hours=1)) == output.bounds
    assert output.unmatched is Unmatched.LEFT


@pytest.mark.parametrize(
    ("wrong", "right", "line", "code"),
    [
        ("pairs", "'p a i r s'", 10, "PIPELINE_NAME"),
        ("on: [carrier, flight]", "on: []", 11, "PIPELINE_VALUE"),
        ("[carrier, flight]", "[carier]", 11, "PIPELINE_UNKNOWN_COLUMN"),
        ("      on: [carrier, flight]\n", "", 9, "PIPELINE_MISSING_KEY"),
        ("2 hours\n      left", "soon\n      left", 12, "PIPELINE_DURATION"),
        (
            "2 hours\n      left",
            "{until: 1 hour}\n      left",
            12,
            "PIPELINE_UNKNOWN_KEY",
        ),
        ("origin = 'JFK'", "orign = 'JFK'", 13, "PIPELINE_UNKNOWN_COLUMN"),
        ("origin = 'EWR'", "rand() < 1", 14, "PIPELINE_FUNCTION_REFUSED"),
        ("left_id: event_id", "left_id: evnt_id", 13, "PIPELINE_UNKNOWN_COLUMN"),
        ("left_id: event_id", "", 13, "PIPELINE_VALUE"),
        ("{left_id:", "{pane:", 13, "PIPELINE_RESERVED_NAME"),
        ("{right_id:", "{Left_ID:", 10, "PIPELINE_DUPLICATE_NAME"),
        ("{right_id:", "{Carrier:", 10, "PIPELINE_DUPLICATE_NAME"),
        (
            "{where: \"origin = 'EWR'\", select",
            "{select",
            14,
            "PIPELINE_MISSING_KEY",
        ),
        ("      table", "      unmatched: all\n      table", 10, "PIPELINE_VALUE"),
        ("      table", "      by: [origin]\n      table", 10, "PIPELINE_UNKNOWN_KEY"),
    ],
)
def test_a_mistake_is_found_on_its_line(
    tmp_path: Path, wrong: str, right: str, line: int, code: str
) -> None:
    """Each of them in words that say what to do."""
    assert wrong in _FILE
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, _FILE.replace(wrong, right, 1))
    assert [code] == [problem.code for problem in caught.value.problems]
    assert caught.value.places[0].endswith(f":{line}")


@pytest.mark.parametrize(
    "output",
    [
        _JOIN,
        replace(_JOIN, unmatched=Unmatched.BOTH),
        replace(_JOIN, within=Within(after=timedelta(minutes=5))),
    ],
)
def test_the_ledgers_json_gives_the_output_back(output: Join) -> None:
    """And tells each of them from the others."""
    pipeline = replace(DEPARTURES, outputs=(output,))
    assert pipeline == from_json(pipeline_definition_json(pipeline))
    other = replace(DEPARTURES, outputs=(replace(output, table="others"),))
    assert definition_hash(pipeline) != definition_hash(other)


def test_an_event_is_taken_that_is_on_either_side() -> None:
    """So what is on neither is filtered, when no other output wants it."""
    assert "(origin = 'JFK') OR (origin = 'EWR')" == _JOIN.where


def test_two_outputs_do_not_share_a_table() -> None:
    """Whatever their kinds are."""
    with pytest.raises(PipelineError, match="PIPELINE_DUPLICATE_NAME"):
        replace(DEPARTURES, outputs=(Append(table="pairs"), _JOIN))


def test_pairs_are_not_written_at_least_once() -> None:
    """A batch that ran again would pair its events again."""
    with pytest.raises(PipelineError, match="joins events"):
        replace(
            DEPARTURES,
            outputs=(_JOIN,),
            guarantee=Guarantee.AT_LEAST_ONCE,
            deduplicate=None,
        )
