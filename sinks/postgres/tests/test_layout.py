"""Names, instants, columns and SQL blocks: what needs no server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.outputs.window_aggregates import (
    AggregateFunction,
    WindowAggregate,
)
from tallyweir.sinks.postgres.outputs.window_columns import LatePolicy, fixed_windows
from tallyweir.sinks.postgres.outputs.window_table import WindowTable
from tallyweir.sinks.postgres.server.columns import (
    POSITION_COLUMNS,
    Column,
    packed,
    table_identifier,
    type_name,
)
from tallyweir.sinks.postgres.server.instants import to_datetime, to_microseconds
from tallyweir.sinks.postgres.server.naming import (
    bucket_of_runs,
    revisions_table,
    staging_schema,
    state_table,
)
from tallyweir.sinks.postgres.server.statements import load_statements

_FILES = (
    ("ledger", "claim.sql"),
    ("outputs", "append_table.sql"),
    ("outputs", "window_table.sql"),
    ("publish", "publish.sql"),
    ("staging", "rejections.sql"),
    ("tables", "result_tables.sql"),
    ("catalog", "runs.sql"),
    ("staging", "staging.sql"),
    ("outputs", "window_merge.sql"),
)


@given(instant_us=st.integers(-(10**15), 10**17))
def test_instants_are_exact_to_the_microsecond(instant_us: int) -> None:
    """No floating point comes between the protocol and the database."""
    assert instant_us == to_microseconds(to_datetime(instant_us))


def test_instants_of_other_zones_are_the_same_instants() -> None:
    """An aware timestamp means one moment, whatever its zone."""
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    zone = timezone(timedelta(hours=5))
    assert to_microseconds(noon) == to_microseconds(noon.astimezone(zone))
    assert to_datetime(None) is None
    assert to_microseconds(None) is None


def test_a_buckets_name_tells_the_bucket() -> None:
    """Buckets before 1970 are negative and have a name without a minus."""
    assert 3600 == bucket_of_runs("seen_id_run_p12_b3600")
    assert -3600 == bucket_of_runs("seen_id_run_p12_bm3600")


def test_names_of_two_pipelines_or_epochs_never_meet() -> None:
    """Numbers are kept apart, so that p1 e23 is not p12 e3."""
    assert staging_schema(1, 23) != staging_schema(12, 3)
    assert state_table(1, "a") != state_table(1, "b")
    assert state_table(1, "a") != state_table(2, "a")
    assert len(state_table(2**31 - 1, "t" * 200).as_string(None)) <= 63 + len(
        '"tallyweir".""'
    )


def test_a_revisions_table_stays_in_its_tables_schema() -> None:
    """The suffix goes to the table's name."""
    assert '"mine"."windows_revisions"' == (
        table_identifier(revisions_table("mine.windows")).as_string(None)
    )


def test_names_are_quoted_whatever_they_hold() -> None:
    """A name cannot end its quotes, and only the first dot separates a schema."""
    assert '"public"."a""; DROP"' == table_identifier('a"; DROP').as_string(None)
    assert '"a"."b.c"' == table_identifier("a.b.c").as_string(None)


def test_only_listed_types_become_sql() -> None:
    """A type never comes from a user's text."""
    with pytest.raises(KeyError):
        type_name("bigint); DROP TABLE results")


def test_jsonb_is_staged_as_text_and_cast_when_moved() -> None:
    """Binary COPY of jsonb is not what Arrow writes."""
    column = Column(name="body", postgres_type="jsonb")
    assert ('"body" jsonb', '"body" text', '"body"::jsonb') == (
        column.definition.as_string(None),
        column.staging_definition.as_string(None),
        column.from_staging.as_string(None),
    )


def test_every_row_of_an_append_table_tells_where_it_comes_from() -> None:
    """The position columns are the last ones."""
    table = AppendTable(table="t", staging_table="s", event_columns=())
    assert POSITION_COLUMNS == table.columns == table.staging_columns


def _aggregate(function: AggregateFunction, kind: str = "bigint") -> WindowAggregate:
    return WindowAggregate(
        column=Column(name="result", postgres_type=kind),
        function=function,
        number=4,
        partial_type=kind,
    )


@pytest.mark.parametrize(
    ("function", "partials"),
    [
        (AggregateFunction.COUNT, [("tallyweir_a4_count", "add")]),
        (
            AggregateFunction.SUM,
            [("tallyweir_a4_sum", "add"), ("tallyweir_a4_count", "add")],
        ),
        (
            AggregateFunction.AVG,
            [("tallyweir_a4_sum", "add"), ("tallyweir_a4_count", "add")],
        ),
        (AggregateFunction.MIN, [("tallyweir_a4_min", "least")]),
        (AggregateFunction.MAX, [("tallyweir_a4_max", "greatest")]),
        (
            AggregateFunction.STDDEV,
            [
                ("tallyweir_a4_count", "add"),
                ("tallyweir_a4_mean", "mean"),
                ("tallyweir_a4_squares", "squares"),
            ],
        ),
    ],
)
def test_each_aggregate_is_kept_as_partials_that_merge(
    function: AggregateFunction, partials: list[tuple[str, str]]
) -> None:
    """Sums carry the count that tells an empty sum from zero."""
    assert partials == [
        (partial.column.name, partial.merge)
        for partial in _aggregate(function).partials
    ]


def test_text_extremes_are_kept_in_byte_order() -> None:
    """The order of a language would make results depend on the batches."""
    (partial,) = _aggregate(AggregateFunction.MIN, "text").partials
    assert '"tallyweir_a4_min" text COLLATE "C"' == partial.definition.as_string(None)


def test_a_window_tables_columns_are_in_one_order_everywhere() -> None:
    """Keys first, then partials when staged, results when read."""
    table = WindowTable(
        table="t",
        staging_table="s",
        windows=fixed_windows(1),
        by=(Column(name="origin", postgres_type="text"),),
        aggregates=(_aggregate(AggregateFunction.SUM),),
        allowed_lateness_us=0,
        late=LatePolicy.DROP,
    )
    assert [
        "window_start",
        "window_end",
        "origin",
        "tallyweir_events",
        "tallyweir_a4_sum",
        "tallyweir_a4_count",
    ] == [column.name for column in table.staging_columns]
    assert ["window_start", "window_end", "origin", "result", "pane", "final"] == [
        column.name for column in table.result_columns
    ]


@pytest.mark.parametrize(("room", "file_name"), _FILES)
def test_each_sql_file_is_made_of_named_statements(room: str, file_name: str) -> None:
    """Every block has a name of its own and holds one statement."""
    statements = load_statements(f"tallyweir.sinks.postgres.{room}", file_name)
    assert statements
    for statement in statements.values():
        text = statement.as_string(None)
        assert text
        # A block of PL/pgSQL is one statement, made of several.
        is_of_block = text.startswith("DECLARE") or ":=" in text
        assert is_of_block or ";" not in text


def test_staging_has_columns_of_one_width_first() -> None:
    """Those that vary keep their order; jsonb is text in staging."""
    types = [
        "text",
        "boolean",
        "bigint",
        "jsonb",
        "integer",
        "timestamp with time zone",
    ]
    columns = [Column(name=one[:4], postgres_type=one) for one in types]
    found = [column.name for column in packed(columns)]
    assert ["bigi", "time", "inte", "bool", "text", "json"] == found


@pytest.mark.parametrize(
    ("horizon_us", "ids_from_us", "watermark_us", "expected"),
    [
        (None, None, 100, None),
        (30, None, None, None),
        (30, None, 100, 70),
        (30, 80, 100, 80),
        (30, 60, 100, 70),
    ],
)
def test_no_id_is_known_again_that_was_forgotten(
    horizon_us: int | None,
    ids_from_us: int | None,
    watermark_us: int | None,
    expected: int | None,
) -> None:
    """A longer horizon reaches back only as far as IDs are known."""
    layout = PipelineLayout(
        pipeline="p",
        definition="{}",
        definition_hash="",
        outputs=(),
        shards=1,
        bucket_seconds=60,
        watermark_delay_us=0,
        idle_timeout_us=0,
        horizon_us=horizon_us,
        ids_from_us=ids_from_us,
    )
    assert expected == layout.expired_before_us(watermark_us)
