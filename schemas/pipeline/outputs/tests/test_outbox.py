"""Outbox outputs: how they are written, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.pipeline import (
    Append,
    Outbox,
    Pipeline,
    PipelineError,
    check_columns,
    from_json,
    load_pipeline,
    pipeline_definition_json,
)
from tallyweir.schemas.pipeline.tests.pipelines import DEPARTURES

_OUTBOX = Outbox(topic="out", key="airline", select=("event_id", "airline"))
_FILE = """
pipeline: departures
source:
  topic: flight-departures
  schema: flight_departure.v1
  event_id: event_id
  event_time: scheduled_at
  watermark_delay: 2 hours
outputs:
"""


def _with(*outputs: Outbox | Append) -> Pipeline:
    return replace(DEPARTURES, outputs=outputs)


def _load(tmp_path: Path, output: str) -> Pipeline:
    path = tmp_path / "departures.yaml"
    path.write_text(f"{_FILE}  - {output}\n")
    return load_pipeline(path)


def test_the_file_says_topic_key_and_columns(tmp_path: Path) -> None:
    """Without select, a message has all."""
    pipeline = _load(tmp_path, "outbox: {topic: out, key: origin, select: [carrier]}")
    assert (Outbox(topic="out", key="origin", select=("carrier",)),) == pipeline.outputs
    pipeline = _load(tmp_path, "outbox: {topic: out, key: origin}")
    assert (Outbox(topic="out", key="origin"),) == pipeline.outputs


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("outbox: {topic: out}", "PIPELINE_MISSING_KEY"),
        ("outbox: {topic: out, key: origin, table: t}", "PIPELINE_UNKNOWN_KEY"),
        ("outbox: {topic: 'o u t', key: origin}", "PIPELINE_NAME"),
        ("outbox: {topic: out, key: orign}", "PIPELINE_UNKNOWN_COLUMN"),
        (
            "outbox: {topic: out, key: origin, select: [carier]}",
            "PIPELINE_UNKNOWN_COLUMN",
        ),
        ("outbox: {topic: out, key: origin, select: []}", "PIPELINE_VALUE"),
        (
            "outbox: {topic: out, key: origin, select: [carrier, carrier]}",
            "PIPELINE_DUPLICATE_NAME",
        ),
        (
            "outbox: {topic: flight-departures, key: origin}",
            "PIPELINE_DUPLICATE_NAME",
        ),
    ],
)
def test_a_mistake_is_refused(tmp_path: Path, output: str, code: str) -> None:
    """A typo must not become a topic or an empty message."""
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, output)
    assert [code] == [problem.code for problem in caught.value.problems]


def test_two_outputs_do_not_send_to_one_topic() -> None:
    """Their messages could not be told apart, and neither could their IDs."""
    with pytest.raises(PipelineError, match="PIPELINE_DUPLICATE_NAME"):
        _with(_OUTBOX, replace(_OUTBOX, key="origin"))


def test_what_was_looked_up_may_be_key_and_value() -> None:
    """Outputs see all columns."""
    contract = load_contract("flight_departure.v1", Path())
    check_columns(_with(_OUTBOX), contract.fields)


def test_the_ledgers_json_gives_the_output_back() -> None:
    """With the name that the ledger counts it by."""
    pipeline = _with(Append(table="departures"), _OUTBOX)
    definition = pipeline_definition_json(pipeline)
    assert pipeline == from_json(definition)
    assert "outbox:out" == definition["outputs"][1]["table"]
    assert {} == pipeline.wanted_databases
