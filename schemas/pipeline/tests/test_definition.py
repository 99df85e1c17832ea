"""The model: whoever builds a pipeline, one that exists is valid."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from datetime import timedelta

import pytest

from tallyweir.schemas.pipeline import (
    Aggregate,
    AggregateFunction,
    Append,
    Deduplicate,
    Enrichment,
    HeaderId,
    Pipeline,
    PipelineError,
    Rule,
    Window,
)
from tallyweir.schemas.pipeline.outputs.window import Fixed
from tallyweir.schemas.pipeline.tests.pipelines import DEPARTURES, SOURCE

COUNT = Aggregate(column="n", function=AggregateFunction.COUNT)
HOUR = timedelta(hours=1)


def _aggregate(column: str) -> Aggregate:
    return Aggregate(column=column, function=AggregateFunction.COUNT)


def _window(by: tuple[str, ...] = (), size: timedelta = HOUR) -> Window:
    return Window(table="t", windows=Fixed(size=size), by=by, aggregates=(COUNT,))


def _append(*columns: str, table: str = "t") -> Append:
    return Append(table=table, columns=columns or None)


def _enrichment(column: str = "b", default: str = "b") -> Enrichment:
    return Enrichment(
        table="t", on={"a": "a"}, select={column: "x"}, default={default: 1}
    )


def _pipeline(*tables: str, name: str = "p") -> Pipeline:
    outputs = tuple(Append(table=table) for table in tables)
    return Pipeline(name=name, source=SOURCE, outputs=outputs)


@pytest.mark.parametrize(
    ("build", "code", "place"),
    [
        (lambda: _pipeline("t", name="Flights"), "PIPELINE_NAME", "Pipeline.name"),
        (lambda: _pipeline("t", name="a" * 41), "PIPELINE_NAME", "Pipeline.name"),
        (lambda: _pipeline("t", name="a\n"), "PIPELINE_NAME", "Pipeline.name"),
        (lambda: _append(table="a.b.c"), "PIPELINE_NAME", "Append.table"),
        (lambda: _append(table="a;b"), "PIPELINE_NAME", "Append.table"),
        (lambda: _append(table=".b"), "PIPELINE_NAME", "Append.table"),
        (lambda: _append(table="t" * 64), "PIPELINE_NAME", "Append.table"),
        (
            lambda: _append(table="pg_catalog.x"),
            "PIPELINE_RESERVED_NAME",
            "Append.table",
        ),
        (
            lambda: _append(table="Tallyweir.x"),
            "PIPELINE_RESERVED_NAME",
            "Append.table",
        ),
        (lambda: _append("a", "b-c"), "PIPELINE_NAME", "Append.columns[1]"),
        (
            lambda: _append("a", "A"),
            "PIPELINE_DUPLICATE_NAME",
            "Append.columns",
        ),
        (
            lambda: _append("kafka_offset"),
            "PIPELINE_RESERVED_NAME",
            "Append.columns[0]",
        ),
        (lambda: _window(("pane",)), "PIPELINE_RESERVED_NAME", "Window.by[0]"),
        (lambda: _window(("n",)), "PIPELINE_DUPLICATE_NAME", "Window"),
        (
            lambda: _window(size=timedelta()),
            "PIPELINE_DURATION",
            "Fixed.size",
        ),
        (lambda: _aggregate("Final"), "PIPELINE_RESERVED_NAME", "Aggregate"),
        (lambda: _aggregate("tallyweir_x"), "PIPELINE_RESERVED_NAME", "Aggregate"),
        (
            lambda: _enrichment("window_end", "window_end"),
            "PIPELINE_RESERVED_NAME",
            "Enrichment.select.window_end",
        ),
        (
            lambda: _enrichment(default="c"),
            "PIPELINE_UNKNOWN_COLUMN",
            "Enrichment.default.c",
        ),
        (
            lambda: Rule(reason_code="badDistance", condition="a > 0"),
            "PIPELINE_NAME",
            "Rule",
        ),
        (
            lambda: Deduplicate(horizon=timedelta()),
            "PIPELINE_DURATION",
            "Deduplicate.horizon",
        ),
        (
            lambda: dataclasses.replace(SOURCE, topic="a/b"),
            "PIPELINE_NAME",
            "Source.topic",
        ),
        (
            lambda: dataclasses.replace(SOURCE, topic=("a", "a/b")),
            "PIPELINE_NAME",
            "Source.topic[1]",
        ),
        (
            lambda: dataclasses.replace(SOURCE, topic=("a", "b", "a")),
            "PIPELINE_DUPLICATE_NAME",
            "Source.topic[2]",
        ),
        (
            lambda: dataclasses.replace(SOURCE, topic=()),
            "PIPELINE_VALUE",
            "Source.topic",
        ),
        (
            lambda: dataclasses.replace(SOURCE, schema=("a.v1", "")),
            "PIPELINE_VALUE",
            "Source.schema",
        ),
        (
            lambda: dataclasses.replace(SOURCE, schema=()),
            "PIPELINE_VALUE",
            "Source.schema",
        ),
        (
            lambda: dataclasses.replace(SOURCE, schema=("a.v1", "b.v1", "a.v1")),
            "PIPELINE_DUPLICATE_NAME",
            "Source.schema[2]",
        ),
        (
            lambda: dataclasses.replace(
                DEPARTURES,
                source=dataclasses.replace(SOURCE, schema=("a.v1", "b.v1")),
                deduplicate=Deduplicate(conflicts=False),
            ),
            "PIPELINE_CONFLICTS",
            "Pipeline.deduplicate.conflicts",
        ),
        (
            lambda: dataclasses.replace(SOURCE, event_id=HeaderId(header=" ")),
            "PIPELINE_VALUE",
            "Source.event_id",
        ),
        (
            lambda: dataclasses.replace(SOURCE, watermark_delay=-HOUR),
            "PIPELINE_DURATION",
            "Source.watermark_delay",
        ),
        (_pipeline, "PIPELINE_VALUE", "Pipeline.outputs"),
        (
            lambda: _pipeline("t", "u", "public.t"),
            "PIPELINE_DUPLICATE_NAME",
            "Pipeline.outputs[2].table",
        ),
        (
            lambda: dataclasses.replace(
                DEPARTURES, enrich=(_enrichment(), _enrichment("B", "B"))
            ),
            "PIPELINE_DUPLICATE_NAME",
            "Pipeline.enrich",
        ),
        (
            lambda: dataclasses.replace(DEPARTURES, validate=DEPARTURES.validate * 2),
            "PIPELINE_DUPLICATE_NAME",
            "Pipeline.validate",
        ),
    ],
)
def test_an_invalid_part_cannot_be_built(
    build: Callable[[], object], code: str, place: str
) -> None:
    """The error is one to act on, and says where."""
    with pytest.raises(PipelineError) as caught:
        build()
    assert [problem.code for problem in caught.value.problems] == [code]
    assert caught.value.places == (place,)
    assert caught.value.saw.startswith(f"{place}: ")


def test_the_limits_of_names_are_allowed() -> None:
    """The longest name that Postgres keeps whole is a good one."""
    assert _append("c" * 63, table=f"{'s' * 63}.{'t' * 63}").columns == ("c" * 63,)
    assert _pipeline("t", name="a" * 40).name == "a" * 40


def test_deduplication_is_on_unless_turned_off() -> None:
    """Exactly once is what a user gets who says nothing."""
    assert _pipeline("t").deduplicate == Deduplicate(
        horizon=timedelta(days=7), conflicts=True
    )


@pytest.mark.parametrize(
    ("schema", "deduplicate"),
    [
        ("a.v1", Deduplicate(conflicts=False)),
        (("a.v1", "b.v1"), Deduplicate(conflicts=True)),
        (("a.v1", "b.v1"), None),
    ],
)
def test_conflicts_may_be_repeats_where_no_event_is_lost_by_it(
    schema: str | tuple[str, ...], deduplicate: Deduplicate | None
) -> None:
    """Of one contract they are re-encoded; without deduplication each event counts."""
    source = dataclasses.replace(SOURCE, schema=schema)
    pipeline = dataclasses.replace(DEPARTURES, source=source, deduplicate=deduplicate)
    assert deduplicate == pipeline.deduplicate


def test_an_error_with_several_problems_survives_pickling() -> None:
    """It crosses from worker processes to the driver with all that it says."""
    with pytest.raises(PipelineError) as caught:
        Append(table="a b", columns=("pane", "x y"))
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.problems == caught.value.problems
    assert "3 problems:" in copy.saw


def test_an_invalid_pipeline_is_a_configuration_error() -> None:
    """Scripts see exit code 78 for what someone must change."""
    assert PipelineError.exit_code == 78
