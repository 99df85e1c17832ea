"""Definitions in the ledger: a way back, and a hash that only meaning changes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.schemas.pipeline import (
    Aggregate,
    AggregateFunction,
    Append,
    Deduplicate,
    Enrichment,
    Fixed,
    HeaderId,
    Late,
    Pipeline,
    Prediction,
    Session,
    Sliding,
    Window,
    definition_hash,
    from_json,
    pipeline_definition_json,
)
from tallyweir.schemas.pipeline.outputs.window import WindowKind
from tallyweir.schemas.pipeline.tests.pipelines import DEPARTURES, SOURCE

WINDOW = DEPARTURES.outputs[1]
assert isinstance(WINDOW, Window)

# Made here, because the first expression imports a parser, which takes seconds on a
# busy machine, and Hypothesis would take its inputs for slow ones.
PREDICTION = Prediction(
    model="risk.onnx",
    inputs={"hour": ("hour(scheduled_at)",), "row": ("distance_miles", "flight")},
    columns={"risk": "probabilities[1]"},
)

DURATIONS = st.integers(min_value=1, max_value=10**9).map(
    lambda count: timedelta(milliseconds=count)
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)


def outputs(
    columns: tuple[str, ...] | None,
    windows: WindowKind,
    late: Late,
    lateness: timedelta,
    fraction: float,
) -> tuple[Append, Window]:
    """Return an output of each of these kinds."""
    percentile = Aggregate(
        column="typical",
        function=AggregateFunction.APPROX_PERCENTILE,
        argument="distance_miles",
        fraction=fraction,
    )
    window = Window(
        table="w",
        windows=windows,
        by=("carrier",),
        aggregates=(percentile,),
        allowed_lateness=lateness,
        late=late,
    )
    return Append(table="t", columns=columns), window


PIPELINES = st.builds(
    Pipeline,
    name=st.just("p"),
    source=st.builds(
        dataclasses.replace,
        st.just(SOURCE),
        topic=st.sampled_from(["t", ("t", "u")]),
        event_id=st.sampled_from(["event_id", HeaderId(header="ce_id")]),
        watermark_delay=DURATIONS,
        idle_timeout=DURATIONS,
        # Few enough buckets of whatever horizon.
        future_bound=st.sampled_from([timedelta(minutes=1), timedelta(hours=12)]),
        past_bound=st.none() | DURATIONS,
    ),
    deduplicate=st.none()
    | st.builds(
        Deduplicate,
        horizon=DURATIONS,
        conflicts=st.booleans(),
        false_positives=st.sampled_from([0.001, 0.01, 0.0005]),
    ),
    compute=st.sampled_from([{}, {"z": "upper(carrier)", "a": "concat(z, z)"}]),
    validate=st.sampled_from([(), DEPARTURES.validate]),
    enrich=st.lists(
        st.builds(
            Enrichment,
            table=st.just("airlines"),
            on=st.just({"carrier": "code"}),
            select=st.just({"y": "name", "b": "country"}),
            default=st.dictionaries(st.sampled_from(["y", "b"]), SCALARS),
            refresh=DURATIONS,
        ),
        max_size=1,
    ).map(tuple),
    predict=st.sampled_from([(), (PREDICTION,)]),
    outputs=st.builds(
        outputs,
        st.sampled_from([None, ("event_id", "carrier")]),
        st.builds(
            Fixed, size=DURATIONS, time_zone=st.sampled_from(["UTC", "Europe/Berlin"])
        )
        | st.builds(Session, gap=DURATIONS)
        | DURATIONS.map(lambda every: Sliding(size=3 * every, every=every)),
        st.sampled_from(Late),
        DURATIONS,
        st.floats(0, 1),
    ),
)


@given(PIPELINES)
def test_a_pipeline_comes_back_from_the_ledger(pipeline: Pipeline) -> None:
    """Also when the database has reordered every object's keys, as jsonb does."""
    stored = json.dumps(pipeline_definition_json(pipeline), sort_keys=True)
    back = from_json(json.loads(stored))
    assert back == pipeline
    assert definition_hash(back) == definition_hash(pipeline)
    assert list(back.compute) == list(pipeline.compute)
    assert [list(one.select) for one in back.enrich] == [
        list(one.select) for one in pipeline.enrich
    ]


def test_the_hash_is_the_same_in_every_release() -> None:
    """Another hash would look like an update of the pipeline that nobody made."""
    assert definition_hash(DEPARTURES) == (
        "74b54ed26a81c27748dbc1b62a74c527378b7d28300bf5ad71cd98d83ee95f3e"
    )


def test_several_contracts_are_a_list_in_the_ledger() -> None:
    """One is text, as ever: pipelines of an older release keep their hash."""
    source = dataclasses.replace(SOURCE, schema=("order.v1", "payment.v1"))
    pipeline = dataclasses.replace(DEPARTURES, source=source)
    definition = pipeline_definition_json(pipeline)
    assert ["order.v1", "payment.v1"] == definition["source"]["schema"]
    assert pipeline == from_json(json.loads(json.dumps(definition)))
    alone = dataclasses.replace(SOURCE, schema=("flight_departure.v1",))
    listed = dataclasses.replace(DEPARTURES, source=alone)
    assert definition_hash(DEPARTURES) == definition_hash(listed)
    turned = dataclasses.replace(SOURCE, schema=("payment.v1", "order.v1"))
    other = dataclasses.replace(DEPARTURES, source=turned)
    assert definition_hash(pipeline) != definition_hash(other)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: dataclasses.replace(one, name="other"),
        lambda one: dataclasses.replace(one, deduplicate=None),
        lambda one: dataclasses.replace(one, validate=()),
        lambda one: dataclasses.replace(one, compute={"x": "1"}),
        lambda one: dataclasses.replace(one, enrich=()),
        lambda one: dataclasses.replace(one, outputs=one.outputs[::-1]),
        lambda one: dataclasses.replace(
            one, source=dataclasses.replace(one.source, watermark_delay=timedelta(1))
        ),
    ],
)
def test_every_change_of_meaning_changes_the_hash(
    change: Callable[[Pipeline], Pipeline],
) -> None:
    """Two runs with one hash did the same."""
    assert definition_hash(change(DEPARTURES)) != definition_hash(DEPARTURES)


def test_another_format_is_not_guessed_at() -> None:
    """A later release's definition is not read as if it were ours."""
    definition = {**pipeline_definition_json(DEPARTURES), "format": 2}
    with pytest.raises(ValueError, match="format 2, expected 1"):
        from_json(definition)


def test_a_list_is_written_as_a_tuple_is() -> None:
    """A Python file may have either; the definition is the same."""
    listed = dataclasses.replace(
        DEPARTURES,
        outputs=list(DEPARTURES.outputs),  # type: ignore[arg-type]
        validate=list(DEPARTURES.validate),  # type: ignore[arg-type]
        predict=[],  # type: ignore[arg-type]
    )
    assert definition_hash(listed) == definition_hash(DEPARTURES)
