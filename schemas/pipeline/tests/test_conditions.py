"""Which events a pipeline and its outputs want: ``filter`` and ``where``."""

from __future__ import annotations

import dataclasses

import pytest

from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.pipeline import (
    Append,
    Outbox,
    Output,
    Pipeline,
    PipelineError,
    Window,
    check_columns,
    definition_hash,
    from_json,
    pipeline_definition_json,
)
from tallyweir.schemas.pipeline.tests.pipelines import DEPARTURES

_FIELDS = load_contract("flight_departure.v1").fields


def _window(condition: str) -> Output:
    output = DEPARTURES.outputs[1]
    assert isinstance(output, Window)
    return dataclasses.replace(output, where=condition)


def _with(condition: str | None, *outputs: Output) -> Pipeline:
    return dataclasses.replace(
        DEPARTURES, filter=condition, outputs=outputs or DEPARTURES.outputs
    )


def test_conditions_come_back_from_the_ledger() -> None:
    """And what has none is described as before there could be any."""
    outputs = (
        Append(table="far", where="distance_miles > 1000"),
        _window("airline = 'KLM'"),
        Outbox(topic="near", key="carrier", where="distance_miles < 100"),
    )
    pipeline = _with("origin IS NOT NULL", *outputs)
    definition = pipeline_definition_json(pipeline)
    assert from_json(definition) == pipeline
    assert definition_hash(pipeline) != definition_hash(_with(None, *outputs))
    plain = pipeline_definition_json(DEPARTURES)
    assert "filter" not in plain
    assert all("where" not in output for output in plain["outputs"])


def test_conditions_see_what_was_looked_up() -> None:
    """Unlike a rule, which judges the event itself."""
    check_columns(_with("airline <> 'unknown'"), _FIELDS)


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("airlin = 'KLM'", "PIPELINE_UNKNOWN_COLUMN"),
        ("rand() < 0.5", "PIPELINE_FUNCTION_REFUSED"),
        ("count(*) > 1", "PIPELINE_FUNCTION_REFUSED"),
        ("origin = ", "PIPELINE_EXPRESSION_SYNTAX"),
    ],
)
@pytest.mark.parametrize("place", ["filter", "append", "window", "outbox"])
def test_a_condition_is_checked_wherever_it_stands(
    condition: str, code: str, place: str
) -> None:
    """As rules are: one value from one event, the same on a replay."""

    def build() -> Pipeline:
        match place:
            case "filter":
                return _with(condition)
            case "append":
                return _with(None, Append(table="t", where=condition))
            case "window":
                return _with(None, _window(condition))
            case _:
                output = Outbox(topic="t", key="carrier", where=condition)
                return _with(None, output)

    with pytest.raises(PipelineError) as caught:
        check_columns(build(), _FIELDS)
    assert [code] == [problem.code for problem in caught.value.problems]
    assert ("filter" if place == "filter" else "where") in caught.value.places[0]
