"""Columns: what a pipeline names must be in the contract, and fit."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from tallyweir.schemas.contract import ContractField, load_contract
from tallyweir.schemas.pipeline import (
    Aggregate,
    AggregateFunction,
    Append,
    Enrichment,
    HeaderId,
    Output,
    Pipeline,
    PipelineError,
    Rule,
    Window,
    check_columns,
)
from tallyweir.schemas.pipeline.outputs.window import Fixed
from tallyweir.schemas.pipeline.tests.pipelines import DEPARTURES, SOURCE

FIELDS = load_contract("flight_departure.v1").fields


def _field(name: str, kind: str) -> ContractField:
    return ContractField(name=name, type=kind, nullable=False)


def _problems(
    pipeline: Pipeline, fields: tuple[ContractField, ...] = FIELDS
) -> list[tuple[str, str, str]]:
    with pytest.raises(PipelineError) as caught:
        check_columns(pipeline, fields)
    return [
        (place, problem.code, problem.fix)
        for place, problem in zip(
            caught.value.places, caught.value.problems, strict=True
        )
    ]


def test_a_pipeline_that_fits_its_contract_passes() -> None:
    """Looked up columns count, in outputs, like the event's own."""
    check_columns(DEPARTURES, FIELDS)


def test_every_unknown_column_is_reported_with_the_nearest() -> None:
    """One run shows all of them, in the order of the pipeline."""
    window = Window(
        table="w",
        windows=Fixed(size=timedelta(hours=1)),
        by=("origin", "airlin"),
        aggregates=(
            Aggregate(column="a", function=AggregateFunction.SUM, argument="flihgt"),
        ),
    )
    pipeline = dataclasses.replace(
        DEPARTURES,
        source=dataclasses.replace(SOURCE, event_id="id", event_time="scheduled"),
        validate=(Rule(reason_code="R", condition="distance_mile > 0"),),
        outputs=(Append(table="t", columns=("carier",)), window),
    )
    unknown = "PIPELINE_UNKNOWN_COLUMN"
    names = ", ".join(field.name for field in FIELDS)
    assert _problems(pipeline) == [
        ("Pipeline.source.event_time", unknown, "Write scheduled_at."),
        ("Pipeline.source.event_id", unknown, f"Write one of {names}."),
        ("Pipeline.validate.R", unknown, "Write distance_miles."),
        ("Pipeline.outputs[0].columns[0]", unknown, "Write carrier."),
        ("Pipeline.outputs[1].by[1]", unknown, "Write airline."),
        ("Pipeline.outputs[1].aggregates.a", unknown, "Write flight."),
    ]


@pytest.mark.parametrize("kind", ["long", "string", "date", "local-timestamp-micros"])
def test_event_time_is_an_instant(kind: str) -> None:
    """A number or a local time has no place on the watermark's axis."""
    fields = (_field("event_id", "string"), _field("scheduled_at", kind))
    pipeline = Pipeline(name="p", source=SOURCE, outputs=(Append(table="t"),))
    ((place, code, _),) = _problems(pipeline, fields)
    assert (place, code) == ("Pipeline.source.event_time", "PIPELINE_COLUMN_TYPE")


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        ("string", True),
        ("int", True),
        ("long", True),
        ("uuid", True),
        ("bytes", True),
        ("double", False),
        ("record", False),
        ("boolean", False),
    ],
)
def test_an_id_is_of_a_type_with_one_spelling(kind: str, *, fits: bool) -> None:
    """A fingerprint over 0.0 and -0.0, or over a record, would not be one."""
    fields = (_field("event_id", kind), _field("scheduled_at", "timestamp-millis"))
    pipeline = Pipeline(name="p", source=SOURCE, outputs=(Append(table="t"),))
    if fits:
        check_columns(pipeline, fields)
    else:
        assert [code for _, code, _ in _problems(pipeline, fields)] == [
            "PIPELINE_COLUMN_TYPE"
        ]


def test_an_id_in_a_header_needs_no_field() -> None:
    """CloudEvents carry the ID beside the event."""
    source = dataclasses.replace(SOURCE, event_id=HeaderId(header="ce_id"))
    check_columns(dataclasses.replace(DEPARTURES, source=source), FIELDS[1:])


def test_enrichments_see_the_columns_before_them_only() -> None:
    """A chain of lookups works in its order, and takes no name twice."""
    plane = Enrichment(table="planes", on={"tailnum": "n"}, select={"maker": "m"})
    maker = Enrichment(table="makers", on={"maker": "m"}, select={"Origin": "country"})
    output = Append(table="t")
    good = dataclasses.replace(
        DEPARTURES,
        enrich=(plane, dataclasses.replace(maker, select={"country": "c"})),
        outputs=(output,),
    )
    check_columns(good, FIELDS)
    bad = dataclasses.replace(DEPARTURES, enrich=(maker, plane), outputs=(output,))
    assert [problem[:2] for problem in _problems(bad)] == [
        ("Pipeline.enrich[0].on.maker", "PIPELINE_UNKNOWN_COLUMN"),
        ("Pipeline.enrich[0].select.Origin", "PIPELINE_DUPLICATE_NAME"),
    ]


@pytest.mark.parametrize("kind", ["array", "map", "record"])
def test_windows_are_not_grouped_by_fields_with_parts(kind: str) -> None:
    """Staging has them as text and the windows as jsonb, so every batch would fail."""
    window = DEPARTURES.outputs[1]
    assert isinstance(window, Window)
    fields = tuple(_field(f.name, kind) if f.name == "origin" else f for f in FIELDS)
    pipeline = dataclasses.replace(DEPARTURES, outputs=(window,))
    check_columns(pipeline, FIELDS)
    assert [problem[:2] for problem in _problems(pipeline, fields)] == [
        ("Pipeline.outputs[0].by[0]", "PIPELINE_COLUMN_TYPE")
    ]


def test_rules_do_not_see_looked_up_columns() -> None:
    """An invalid event is a dead letter before it is enriched."""
    rules = (Rule(reason_code="R", condition="airline <> ''"),)
    ((place, code, _),) = _problems(dataclasses.replace(DEPARTURES, validate=rules))
    assert (place, code) == ("Pipeline.validate.R", "PIPELINE_UNKNOWN_COLUMN")


def test_a_field_that_some_contract_lacks_is_no_id_and_no_time() -> None:
    """Every event needs both; in an output such a column may be."""
    lacking = ("gate.v1", "crew.v1")
    fields = tuple(
        dataclasses.replace(field, nullable=True, lacking=lacking)
        if field.name in {"event_id", "scheduled_at", "origin"}
        else field
        for field in FIELDS
    )
    with pytest.raises(PipelineError) as caught:
        check_columns(DEPARTURES, fields)
    assert ("Pipeline.source.event_time", "Pipeline.source.event_id") == (
        caught.value.places
    )
    assert ["PIPELINE_UNKNOWN_COLUMN"] * 2 == [p.code for p in caught.value.problems]
    assert "gate.v1, crew.v1" in caught.value.problems[0].saw
    source = dataclasses.replace(SOURCE, event_id=HeaderId(header="ce_id"))
    by_header = dataclasses.replace(DEPARTURES, source=source)
    with pytest.raises(PipelineError) as caught:
        check_columns(by_header, fields)
    assert ("Pipeline.source.event_time",) == caught.value.places


def test_expressions_may_ask_for_the_topic() -> None:
    """Whatever gives one value for one event; lookups and groups may not."""
    aggregate = Aggregate(
        column="eu",
        function=AggregateFunction.COUNT_IF,
        argument="Kafka_Topic = 'eu'",
    )
    window = Window(
        table="w",
        windows=Fixed(size=timedelta(hours=1)),
        aggregates=(aggregate,),
        where="kafka_topic <> 'us'",
    )
    pipeline = dataclasses.replace(
        DEPARTURES,
        validate=(Rule(reason_code="R", condition="kafka_topic LIKE '%eu%'"),),
        filter="kafka_topic IS NOT NULL",
        outputs=(window,),
    )
    check_columns(pipeline, FIELDS)
    lookup = Enrichment(table="t", on={"kafka_topic": "a"}, select={"b": "b"})
    looked_up = dataclasses.replace(
        DEPARTURES,
        enrich=(lookup,),
        outputs=(Append(table="t", columns=("origin",)),),
    )
    check_columns(looked_up, FIELDS)


@pytest.mark.parametrize("name", ["ctid", "xmin", "tableoid"])
def test_a_field_with_the_name_of_a_system_column_is_refused(name: str) -> None:
    """No table could have it; in other letters it is a name like any."""
    pipeline = Pipeline(name="p", source=SOURCE, outputs=(Append(table="t"),))
    fields = (*FIELDS, _field(name, "long"))
    assert [problem[:2] for problem in _problems(pipeline, fields)] == [
        ("Pipeline.outputs[0]", "PIPELINE_RESERVED_NAME")
    ]
    check_columns(pipeline, (*FIELDS, _field(name.upper(), "long")))


def test_fields_that_differ_in_case_only_are_refused() -> None:
    """Spark could not tell them apart, in any expression."""
    pipeline = Pipeline(name="p", source=SOURCE, outputs=(Append(table="t"),))
    fields = (*FIELDS, _field("Origin", "string"))
    assert [problem[:2] for problem in _problems(pipeline, fields)] == [
        ("Pipeline.source.schema", "PIPELINE_DUPLICATE_NAME")
    ]


@pytest.mark.parametrize("columns", [None, ("event_id",)])
def test_a_field_with_a_name_of_ours_is_refused_only_where_it_is_written(
    columns: tuple[str, ...] | None,
) -> None:
    """A contract of others may have such a field; the table cannot have it twice."""
    fields = (*FIELDS, _field("kafka_offset", "long"))
    outputs: tuple[Output, ...] = (Append(table="t", columns=columns),)
    pipeline = Pipeline(name="p", source=SOURCE, outputs=outputs)
    if columns:
        check_columns(pipeline, fields)
    else:
        assert [problem[:2] for problem in _problems(pipeline, fields)] == [
            ("Pipeline.outputs[0]", "PIPELINE_RESERVED_NAME")
        ]
