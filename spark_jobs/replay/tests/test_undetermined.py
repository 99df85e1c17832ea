"""Which differences a replay does not judge, and why; all others are errors."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tallyweir.schemas.pipeline import (
    Aggregate,
    AggregateFunction,
    Append,
    Enrichment,
    Fixed,
    Pipeline,
    Source,
    Window,
)
from tallyweir.schemas.pipeline.events.enrichment import names_in_ledger
from tallyweir.sinks.postgres.audit.replay.replay_committed import RecordedErasure
from tallyweir.sinks.postgres.audit.replay.replay_parts import parts_of
from tallyweir.sinks.postgres.audit.replay.replay_rows import Values
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.output import ReplayPart
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction as Computed,
)
from tallyweir.sinks.postgres.outputs.window_aggregates import WindowAggregate
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.spark_jobs.replay.undetermined import Undetermined

_PIPELINE = Pipeline(
    name="orders",
    source=Source(
        topic="orders",
        schema="order.v1",
        event_id="order_id",
        event_time="at",
        watermark_delay=timedelta(hours=1),
    ),
    outputs=(
        Append(table="orders"),
        Append(table="risky", where="score > 0.5"),
        Window(
            table="hours",
            windows=Fixed(size=timedelta(hours=1)),
            by=("shop",),
            aggregates=(
                Aggregate(
                    column="total", function=AggregateFunction.SUM, argument="amount"
                ),
                Aggregate(column="people", function=AggregateFunction.COUNT),
            ),
        ),
    ),
)


def _aggregate(name: str, kind: str, number: int, how: str) -> WindowAggregate:
    return WindowAggregate(
        column=Column(name=name, postgres_type=kind),
        function=Computed(how),
        number=number,
        partial_type=kind,
    )


_TEXT = Column(name="shop", postgres_type="text")
_LAYOUT = PipelineLayout(
    pipeline="orders",
    definition="",
    definition_hash="",
    outputs=(
        AppendTable(table="orders", staging_table="o0", event_columns=(_TEXT,)),
        AppendTable(table="risky", staging_table="o1", event_columns=(_TEXT,)),
        WindowTable(
            table="hours",
            staging_table="o2",
            windows=fixed_windows(3_600_000_000),
            by=(_TEXT,),
            aggregates=(
                _aggregate("total", "double precision", 0, "sum"),
                _aggregate("people", "bigint", 1, "approx_count_distinct"),
            ),
            allowed_lateness_us=0,
            late=LatePolicy.DROP,
        ),
    ),
    shards=16,
    bucket_seconds=3_600,
    watermark_delay_us=0,
    idle_timeout_us=0,
    horizon_us=None,
)
_NOTHING = Undetermined(
    pipeline=_PIPELINE,
    layout=_LAYOUT,
    added=(),
    changed_lookups=(),
    erasures=(),
    erased_conditions={},
    has_forgotten=False,
)
_PARTS: dict[str, ReplayPart] = {part.name: part for part in parts_of(_LAYOUT)}


def _explain(
    said: Undetermined,
    part: str,
    one: Values | None,
    other: Values | None,
) -> str:
    return said.explain(_PARTS[part], {}, one, other)


def test_what_nobody_explains_is_an_error() -> None:
    """In every kind of rows, whether both sides have them or one."""
    for part in _PARTS:
        assert "" == _explain(_NOTHING, part, {"shop": "a"}, {"shop": "b"})
        assert "" == _explain(_NOTHING, part, None, {"shop": "b"})
        assert "" == _explain(_NOTHING, part, {"shop": "a"}, None)


def test_sums_of_floats_may_differ_by_their_order_only() -> None:
    """By a billionth at most, and no text, whole number or null is one."""
    assert "another order" in _explain(
        _NOTHING, "hours", {"total": "0.30000000000000004"}, {"total": "0.3"}
    )
    assert "" == _explain(_NOTHING, "hours", {"total": "0.31"}, {"total": "0.3"})
    assert "" == _explain(_NOTHING, "hours", {"total": None}, {"total": "0.3"})
    both = {"total": "0.30000000000000004", "pane": "early"}
    assert "" == _explain(_NOTHING, "hours", both, {"total": "0.3", "pane": "late"})
    assert "approximation" in _explain(
        _NOTHING, "hours", {"people": "7"}, {"people": "8"}
    )


def test_what_a_transform_made_is_undetermined_and_nothing_else() -> None:
    """In its columns; and in outputs that decide by them, whatever is there or not."""
    made = replace(_NOTHING, added=("score",))
    assert "transform" in _explain(made, "orders", {"score": "1"}, {"score": "2"})
    both = {"score": "1", "shop": "a"}
    assert "" == _explain(made, "orders", both, {"score": "2", "shop": "b"})
    assert "" == _explain(made, "orders", None, {"score": "2"})
    assert "transform" in _explain(made, "risky", None, {"shop": "b"})
    assert "" == _explain(made, "dead_letter", None, {"reason": "NEGATIVE"})


def test_what_a_changed_lookup_gave_is_undetermined_and_nothing_else() -> None:
    """Also what was looked up by it; a lookup that is as it was explains nothing."""
    enrich = (
        Enrichment(table="shops", on={"shop": "id"}, select={"city": "city"}),
        Enrichment(table="cities", on={"city": "id"}, select={"score": "people"}),
        Enrichment(table="owners", on={"shop": "id"}, select={"owner": "name"}),
    )
    said = replace(_NOTHING, pipeline=replace(_PIPELINE, enrich=enrich))
    assert "" == _explain(said, "orders", {"city": "a"}, {"city": "b"})
    changed = replace(said, changed_lookups={names_in_ledger(enrich)[0]})
    for column in ("city", "score"):
        assert "looked up" in _explain(changed, "orders", {column: "1"}, {column: "2"})
    assert "looked up" in _explain(changed, "risky", None, {"shop": "b"})
    assert "" == _explain(changed, "orders", {"owner": "a"}, {"owner": "b"})
    assert "" == _explain(changed, "orders", None, {"city": "b"})


def test_erasures_explain_what_they_took() -> None:
    """Rows that went by a condition, and no row too many."""
    by_condition = replace(_NOTHING, erased_conditions={"hours": 2})
    assert "condition" in _explain(by_condition, "hours", None, {"total": "1"})
    assert "" == _explain(by_condition, "hours", {"total": "1"}, None)
    keys = replace(_NOTHING, erasures=(RecordedErasure(epoch=3, took_keys=True),))
    assert "" == _explain(keys, "hours", None, {"total": "1"})


def test_a_forgotten_id_explains_a_copy_that_seems_to_be_the_first() -> None:
    """A row more, a duplicate less; never a row that is not computed again."""
    forgotten = replace(_NOTHING, has_forgotten=True)
    assert "forgotten" in _explain(forgotten, "orders", None, {"shop": "a"})
    assert "forgotten" in _explain(forgotten, "duplicate_event", {}, None)
    assert "" == _explain(forgotten, "orders", {"shop": "a"}, None)
    assert "" == _explain(forgotten, "duplicate_event", None, {})
