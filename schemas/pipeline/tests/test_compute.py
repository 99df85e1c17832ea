"""Computed columns: their names, their order, and what may read them."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path

import pytest

from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.pipeline import (
    Aggregate,
    AggregateFunction,
    Append,
    Enrichment,
    Pipeline,
    PipelineError,
    Rule,
    Window,
    check_columns,
    load_pipeline,
)
from tallyweir.schemas.pipeline.outputs.window import Fixed
from tallyweir.schemas.pipeline.tests.pipelines import DEPARTURES, SOURCE

FIELDS = load_contract("flight_departure.v1").fields
_FILE = """\
pipeline: p
source:
  topic: t
  schema: flight_departure.v1
  event_id: event_id
  event_time: scheduled_at
  watermark_delay: 2 hours
compute:
  km: distance_miles * 1.609
  {name}: {wrong}
outputs:
  - append: {{table: a, columns: [{columns}]}}
"""


def _load(folder: Path, name: str, wrong: str, columns: str = "km") -> Pipeline:
    path = folder / "p.yaml"
    path.write_text(_FILE.format(name=name, wrong=wrong, columns=columns))
    return load_pipeline(path)


def _problems(pipeline: Pipeline) -> list[tuple[str, str, str]]:
    with pytest.raises(PipelineError) as caught:
        check_columns(pipeline, FIELDS)
    found = zip(caught.value.places, caught.value.problems, strict=True)
    return [(place, problem.code, problem.fix) for place, problem in found]


def _lines(folder: Path, *given: str) -> list[tuple[int, str]]:
    with pytest.raises(PipelineError) as caught:
        _load(folder, *given)
    found = zip(caught.value.places, caught.value.problems, strict=True)
    return [(int(place.rpartition(":")[2]), problem.code) for place, problem in found]


def test_computed_columns_see_those_before_them_and_are_seen_by_all_that_follows() -> (
    None
):
    """Rules, lookups, groups, conditions and columns."""
    window = Window(
        table="w",
        windows=Fixed(size=timedelta(hours=1)),
        by=("day", "airline"),
        aggregates=(
            Aggregate(column="a", function=AggregateFunction.SUM, argument="km"),
        ),
        where="km > 1",
    )
    pipeline = dataclasses.replace(
        DEPARTURES,
        compute={
            "km": "distance_miles * 1.609",
            "hm": "KM * 10",
            "day": "date(scheduled_at)",
            "code": "upper(carrier)",
            "of": "kafka_topic",
        },
        validate=(Rule(reason_code="FAR", condition="hm > 0"),),
        enrich=(Enrichment(table="t", on={"code": "c"}, select={"airline": "n"}),),
        filter="hm < 9 OR of = 't'",
        outputs=(Append(table="t", columns=("day", "km")), window),
    )
    check_columns(pipeline, FIELDS)


def test_all_mistakes_of_computed_columns_are_told() -> None:
    """Of their names too, which no other column may have."""
    pipeline = dataclasses.replace(
        DEPARTURES,
        compute={
            "early": "late + 1",
            "late": "distance_miles * 2",
            "Carrier": "upper(carrier)",
            "self": "self",
            "typed": "origin = 1",
            "gone": "fligth",
            "airline": "carrier",
        },
        outputs=(Append(table="t", shard_by=("late",), databases=("home", "b")),),
    )
    assert [(place, code) for place, code, _ in _problems(pipeline)] == [
        ("Pipeline.compute.early", "PIPELINE_UNKNOWN_COLUMN"),
        ("Pipeline.compute.Carrier", "PIPELINE_DUPLICATE_NAME"),
        ("Pipeline.compute.self", "PIPELINE_UNKNOWN_COLUMN"),
        ("Pipeline.compute.typed", "PIPELINE_EXPRESSION_TYPE"),
        ("Pipeline.compute.gone", "PIPELINE_UNKNOWN_COLUMN"),
        ("Pipeline.enrich[0].select.airline", "PIPELINE_DUPLICATE_NAME"),
        ("Pipeline.outputs[0].shard_by[0]", "PIPELINE_UNKNOWN_COLUMN"),
    ]


def test_a_computed_column_is_no_id_and_no_time() -> None:
    """Both are needed before anything is computed."""
    source = dataclasses.replace(SOURCE, event_id="made", event_time="made")
    pipeline = dataclasses.replace(
        DEPARTURES, source=source, compute={"made": "event_id"}
    )
    kind, fix = "PIPELINE_COLUMN_TYPE", "Choose a field."
    assert _problems(pipeline) == [
        ("Pipeline.source.event_time", kind, fix),
        ("Pipeline.source.event_id", kind, fix),
    ]


def test_computed_columns_keep_the_order_of_the_file(tmp_path: Path) -> None:
    """A later one may read an earlier one."""
    assert list(_load(tmp_path, "hour", "km / 3").compute.items()) == [
        ("km", "distance_miles * 1.609"),
        ("hour", "km / 3"),
    ]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("[1, 2]", "PIPELINE_VALUE"),
        ("sum(km)", "PIPELINE_FUNCTION_REFUSED"),
        ("km +", "PIPELINE_EXPRESSION_SYNTAX"),
        ("mk", "PIPELINE_UNKNOWN_COLUMN"),
    ],
)
def test_a_wrong_computed_column_hides_no_other_mistake(
    tmp_path: Path, wrong: str, code: str
) -> None:
    """And what reads it is no mistake."""
    found = _lines(tmp_path, "hour", wrong, "hour, howr")
    assert found == [(10, code), (12, "PIPELINE_UNKNOWN_COLUMN")]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("kafka_key", "PIPELINE_RESERVED_NAME"),
        ("kafka_topic", "PIPELINE_RESERVED_NAME"),
        ("Kafka_anything", "PIPELINE_RESERVED_NAME"),
        ("tallyweir_x", "PIPELINE_RESERVED_NAME"),
        ("a-b", "PIPELINE_NAME"),
    ],
)
def test_a_computed_column_takes_no_name_of_ours_and_none_of_kafka(
    tmp_path: Path, name: str, code: str
) -> None:
    """Kafka's key and headers may become columns under such names."""
    assert _lines(tmp_path, name, "carrier") == [(10, code)]
