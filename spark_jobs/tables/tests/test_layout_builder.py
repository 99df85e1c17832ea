"""From a pipeline and Spark's types to tables in Postgres."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tallyweir.schemas.event_contracts import load_event_contracts
from tallyweir.schemas.pipeline import (
    Aggregate,
    AggregateFunction,
    Append,
    Deduplicate,
    Output,
    Pipeline,
    Source,
    Window,
)
from tallyweir.schemas.pipeline.outputs.window import Fixed
from tallyweir.sinks.postgres.ledger.output_kinds import KINDS
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.window_columns import fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.source.event_columns import argument_column
from tallyweir.spark_jobs.tables.layout_builder import SHARDS, build_layout

_SOURCE = Source(
    topic="page-views",
    schema="page_view.v1",
    event_id="event_id",
    event_time="viewed_at",
    watermark_delay=timedelta(minutes=1),
)
_FIELDS = {
    "event_id": StringType(),
    "user_id": LongType(),
    "page": StringType(),
    "country": StringType(),
    "viewed_at": TimestampType(),
    "value": DoubleType(),
}


def _pipeline(*aggregates: Aggregate) -> Pipeline:
    window = Window(
        table="w",
        windows=Fixed(size=timedelta(hours=1)),
        by=("page",),
        aggregates=aggregates or (Aggregate(column="n", function=_COUNT),),
    )
    append = Append(table="views", columns=None)
    return Pipeline(name="p", source=_SOURCE, outputs=(append, window))


_COUNT = AggregateFunction.COUNT


def _schema(*arguments: DataType) -> StructType:
    fields = [StructField(name, kind) for name, kind in _FIELDS.items()]
    fields += [
        StructField(argument_column(1, number), kind)
        for number, kind in enumerate(arguments)
    ]
    return StructType(fields)


def _aggregate(function: AggregateFunction) -> Aggregate:
    return Aggregate(column="a", function=function, argument="value")


def test_outputs_keep_the_order_of_fields() -> None:
    """An append table holds the event's columns, then where the event came from."""
    layout = build_layout(
        _pipeline(), load_event_contracts(("page_view.v1",)), _schema()
    )
    append, window = layout.outputs
    assert isinstance(append, AppendTable)
    assert isinstance(window, WindowTable)
    assert [
        ("event_id", "text"),
        ("user_id", "bigint"),
        ("page", "text"),
        ("country", "text"),
        ("viewed_at", "timestamp with time zone"),
        ("value", "double precision"),
    ] == [(column.name, column.postgres_type) for column in append.event_columns]
    assert append.staging_table != window.staging_table
    assert ["window_start", "page"] == [column.name for column in window.keys]
    assert fixed_windows(3_600_000_000) == window.windows
    assert SHARDS == layout.shards


@pytest.mark.parametrize("more", [{}, {"user_id": "bigint"}])
def test_documents_are_not_of_a_writer(more: dict[str, str]) -> None:
    """So that fields can be added: any fields read documents that are there."""
    fields = {"event_id": "text not null", "page": "text", **more}
    source = replace(_SOURCE, schema=None, format="json", fields=fields)
    pipeline = replace(
        _pipeline(), source=replace(source, event_time="kafka_timestamp")
    )
    layout = build_layout(pipeline, load_event_contracts(source.schemas), _schema())
    assert ((0, "JSON documents"),) == layout.writers


@pytest.mark.parametrize(
    ("function", "argument", "partial", "result"),
    [
        (AggregateFunction.COUNT, StringType(), "bigint", "bigint"),
        (AggregateFunction.COUNT_IF, BooleanType(), "bigint", "bigint"),
        (AggregateFunction.SUM, IntegerType(), "numeric", "bigint"),
        (AggregateFunction.SUM, LongType(), "numeric", "numeric"),
        (AggregateFunction.SUM, DecimalType(10, 2), "numeric", "numeric"),
        (AggregateFunction.SUM, FloatType(), "double precision", "double precision"),
        (AggregateFunction.AVG, IntegerType(), "numeric", "double precision"),
        (AggregateFunction.AVG, DecimalType(10, 2), "numeric", "numeric"),
        (AggregateFunction.STDDEV, LongType(), "bigint", "double precision"),
        (AggregateFunction.APPROX_COUNT_DISTINCT, StringType(), "bytea", "bigint"),
        (AggregateFunction.MIN, StringType(), "text", "text"),
        (AggregateFunction.MAX, IntegerType(), "integer", "integer"),
    ],
)
def test_an_aggregate_has_the_type_that_postgres_would_give_it(
    function: AggregateFunction, argument: DataType, partial: str, result: str
) -> None:
    """Partials are wide enough that a sum of integers never overflows."""
    layout = build_layout(
        _pipeline(_aggregate(function)),
        load_event_contracts(("page_view.v1",)),
        _schema(argument),
    )
    window = layout.outputs[1]
    assert isinstance(window, WindowTable)
    (aggregate,) = window.aggregates
    assert (partial, result) == (
        aggregate.partials[0].column.postgres_type,
        aggregate.column.postgres_type,
    )


@pytest.mark.parametrize(
    ("function", "argument"),
    [
        (AggregateFunction.SUM, StringType()),
        (AggregateFunction.SUM, BooleanType()),
        (AggregateFunction.AVG, TimestampType()),
        (AggregateFunction.STDDEV, StringType()),
        (AggregateFunction.APPROX_COUNT_DISTINCT, ArrayType(StringType())),
        (AggregateFunction.MAX, ArrayType(StringType())),
        (AggregateFunction.COUNT_IF, IntegerType()),
    ],
)
def test_an_aggregate_of_an_unfit_type_is_refused(
    function: AggregateFunction, argument: DataType
) -> None:
    """The error names table, column and type before any event is read."""
    with pytest.raises(ConfigurationError) as caught:
        build_layout(
            _pipeline(_aggregate(function)),
            load_event_contracts(("page_view.v1",)),
            _schema(argument),
        )
    assert "AGGREGATE_TYPE" == caught.value.code
    assert "w.a" in caught.value.saw


@pytest.mark.parametrize(
    "kind",
    [
        ArrayType(StringType()),
        MapType(StringType(), LongType()),
        StructType([StructField("a", LongType())]),
    ],
)
def test_windows_are_not_grouped_by_columns_with_parts(kind: DataType) -> None:
    """Whoever made them: only Spark knows what a transform or a lookup gives."""
    fields = [
        StructField("page", kind) if field.name == "page" else field
        for field in _schema()
    ]
    with pytest.raises(ConfigurationError) as caught:
        build_layout(
            _pipeline(), load_event_contracts(("page_view.v1",)), StructType(fields)
        )
    assert "GROUP_TYPE" == caught.value.code
    assert "page, by which w" in caught.value.saw


@pytest.mark.parametrize(
    ("horizon", "seconds"),
    [
        (timedelta(days=8), 86_400),
        (timedelta(minutes=1), 60),
        (timedelta(days=365), 3_942_000),
    ],
)
def test_a_horizon_is_kept_in_about_eight_buckets(
    horizon: timedelta, seconds: int
) -> None:
    """Short horizons still have buckets of a minute."""
    pipeline = _pipeline()
    pipeline = replace(
        pipeline,
        source=replace(pipeline.source, future_bound=timedelta(hours=1)),
        deduplicate=Deduplicate(horizon=horizon),
    )
    layout = build_layout(pipeline, load_event_contracts(("page_view.v1",)), _schema())
    assert (seconds, horizon // timedelta(microseconds=1)) == (
        layout.bucket_seconds,
        layout.horizon_us,
    )


def test_without_deduplication_there_is_no_horizon() -> None:
    """None, not zero: nothing expires where nothing is looked up."""
    layout = build_layout(
        replace(_pipeline(), deduplicate=None),
        load_event_contracts(("page_view.v1",)),
        _schema(),
    )
    assert layout.horizon_us is None


@pytest.mark.parametrize(
    ("output", "branches"),
    [
        (Append(table="t"), ("home",)),
        (Append(table="t", databases=("b",)), ("b.0",)),
        (Append(table="t", branches=2), ("home.0", "home.1")),
        (
            Append(table="t", databases=("b",), branches=3),
            ("b.0", "b.1", "b.2"),
        ),
        (
            Append(table="t", databases=("b", "home", "a"), shard_by=("country",)),
            ("b.0", "home", "a.0"),
        ),
    ],
)
def test_an_output_is_published_where_its_databases_are(
    output: Append, branches: tuple[str, ...]
) -> None:
    """In the order of the list, by whose positions rows are spread."""
    layout = build_layout(
        replace(_pipeline(), outputs=(output,)),
        load_event_contracts(("page_view.v1",)),
        _schema(),
    )
    assert branches == layout.outputs[0].branches


def test_a_window_is_published_where_its_databases_are() -> None:
    """Branches of several outputs in one database are one transaction."""
    append, window = _pipeline().outputs
    assert isinstance(append, Append)
    assert isinstance(window, Window)
    pipeline = replace(
        _pipeline(),
        outputs=(
            replace(append, databases=("b",)),
            replace(window, databases=("home", "b"), shard_by=("page",)),
        ),
    )
    layout = build_layout(pipeline, load_event_contracts(("page_view.v1",)), _schema())
    assert ("home", "b.0") == layout.outputs[1].branches
    assert ("b.0",) == layout.branches


def test_the_ledger_knows_every_kind_that_a_pipeline_may_declare() -> None:
    """And nothing is a kind of the ledger that nobody can declare."""
    assert set(Output.kinds) == set(KINDS)
