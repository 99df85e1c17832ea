"""What becomes of events by a pipeline's expressions, and what some expressions give.

``python -m tallyweir.spark_jobs.frame.tests.judged_expressions DIRECTORY`` prints both
as JSON, for ``test_exact_expressions.py`` to look at. In a process of its own, because
PySpark leaves its sockets to the collector.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tallyweir.schemas.codec import EventRecord, encode
from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.event_contracts import EventContract, EventContracts
from tallyweir.schemas.pipeline import (
    Append,
    Fixed,
    Join,
    JoinSide,
    Output,
    Pipeline,
    Rule,
    Source,
    Window,
    Within,
)
from tallyweir.schemas.pipeline.outputs.aggregate import parse_aggregate
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.frame.event_frame import EventFrameRecipe
from tallyweir.spark_jobs.frame.tests.compared_expressions import evaluate, open_session
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.kafka_source import empty_batch
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass
from tallyweir.spark_jobs.task.verdicts import Case, Rules

_NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
_PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}
_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "pieces", "type": "int"},
        {"name": "cents", "type": "int"},
        {"name": "l", "type": "long"},
        {"name": "price", "type": _PRICE},
        {"name": "meter", "type": "string"},
    ],
}
_GOOD: EventRecord = {
    "id": "i",
    "at": _NOON,
    "pieces": 2,
    "cents": 3,
    "l": 4,
    "price": Decimal("1.5"),
    "meter": "m1",
}
_HOUR = dt.timedelta(hours=1)
_APPEND = Append(table="orders")


def _window(aggregate: str, where: str | None = None) -> Window:
    return Window(
        table="by_hour",
        windows=Fixed(size=_HOUR),
        aggregates=(parse_aggregate("total", aggregate),),
        where=where,
    )


def _rules(**conditions: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(reason_code=code, condition=text) for code, text in conditions.items()
    )


_LARGE = {"pieces": 50_000, "cents": 100_000}
_JOIN = Join(
    table="pairs",
    on=("id",),
    left=JoinSide(where="cents / pieces > 1", select={"meter": "meter"}),
    right=JoinSide(where="meter = 'right'", select={"price": "price"}),
    within=Within(before=_HOUR, after=_HOUR),
)
#: By name: rules, filter, outputs and what is not as in a good event.
_CASES: dict[str, tuple[tuple[Rule, ...], str | None, Sequence[Output], Any]] = {
    "rule": (_rules(NEGATIVE="pieces * cents >= 0"), None, [_APPEND], _LARGE),
    "argument": ((), None, [_window("sum(pieces * cents)")], _LARGE),
    "shared": (
        _rules(NEGATIVE="pieces * cents >= 0"),
        None,
        [_window("sum(pieces * cents)")],
        _LARGE,
    ),
    "widened": ((), None, [_window("sum(cast(pieces AS bigint) * cents)")], _LARGE),
    "where": (
        (),
        None,
        [_APPEND, _window("count(*)", "pieces * cents > 1000000000")],
        _LARGE,
    ),
    "doubled": ((), None, [_window("sum(l * 2)")], {"l": 2**62}),
    "one more": ((), None, [_window("max(l + 1)")], {"l": 2**63 - 1}),
    "negated": ((), None, [_window("min(-l)")], {"l": -(2**63)}),
    "absolute": ((), None, [_window("max(abs(l))")], {"l": -(2**63)}),
    "small price": (
        _rules(POSITIVE="price * pieces > 0"),
        None,
        [_window("sum(price * pieces)")],
        {"price": Decimal("0.0000000012"), "pieces": 3},
    ),
    "large price": (
        (),
        None,
        [_window("sum(price * 1000000)")],
        {"price": Decimal(10) ** 21},
    ),
    "too large price": (
        (),
        None,
        [_window("sum(price * 1000000)")],
        {"price": Decimal(10) ** 27},
    ),
    "broken before": (
        _rules(FIRST="l > 9", SECOND="pieces * cents >= 0"),
        None,
        [_APPEND],
        _LARGE,
    ),
    "fails before": (
        _rules(FIRST="pieces * cents >= 0", SECOND="l > 9"),
        None,
        [_APPEND],
        _LARGE,
    ),
    "rule behind filter": (
        _rules(NEGATIVE="pieces * cents >= 0"),
        "l > 9",
        [_APPEND],
        _LARGE,
    ),
    "filter": ((), "cents / pieces > 1", [_APPEND], {"pieces": 0}),
    "behind filter": (
        (),
        "pieces <> 0",
        [_window("sum(cents / pieces)", "cents / pieces > 1")],
        {"pieces": 0},
    ),
    "behind where": (
        (),
        None,
        [_APPEND, _window("sum(cents / pieces)", "pieces <> 0")],
        {"pieces": 0},
    ),
    "case": (
        (),
        None,
        [_window("sum(CASE WHEN pieces <> 0 THEN cents / pieces END)")],
        {"pieces": 0},
    ),
    "side": ((), None, [_JOIN], {"pieces": 0}),
    "undecodable time": (
        (),
        None,
        [_window("sum(unix_micros(at) - l)")],
        {"l": -(2**63)},
    ),
}

#: Each of these raised an exception that ended the batch.
_FAIL = (
    "url_decode(word)",
    "timestamp_seconds(l)",
    "timestamp_millis(l)",
    "element_at(array(1), zero)",
    "parse_json(word) IS NULL",
    "to_binary(word, 'hex')",
    "aes_decrypt(cast(word AS binary), 'abcdefghijklmnop')",
    "str_to_map('a:1,a:2', ',', concat(':', left(word, 0)))",
    "map_from_arrays(array(1, 1), array(zero, 2))",
    "from_json(word, 'a int', map('mode', 'FAILFAST'))",
    "from_csv(word, 'a int', map('mode', 'FAILFAST'))",
    "xpath_int(word, 'a/b')",
    "bit_get(zero, 99)",
    "format_string('%d %d', zero)",
    "word RLIKE word",
    "regexp_replace('a', word, 'b')",
    "convert_timezone('UTC', word, timestamp_ntz'2024-01-01 00:00:00')",
    "from_utc_timestamp(timestamp'2024-01-01 00:00:00', word)",
    "encode('a', word)",
    "decode(cast('a' AS binary), word)",
    "to_date('2024', word)",
    "date_format(date'2024-01-01', concat('bb', left(word, 0)))",
    "to_number(word, '999')",
    "make_date(2024, 13, zero)",
    "nullif(1 / zero, 3) > 0",
    "1 / zero BETWEEN 1 AND 2",
    "regexp_substr('a', word)",
    "transform(array(zero), one -> 1 / one)",
    "ln(zero)",
    "factorial(l)",
    "sqrt(-1 - zero)",
    "exp(l)",
    "ceil(cast(l AS double) * 10)",
    "cast(9.223372036854775808E18D + zero AS bigint)",
    "from_unixtime(l)",
    "date_add(date'2024-01-01', 2147483647 + zero)",
    "unhex(word)",
    "date_trunc(word, timestamp'2024-01-01 00:00:00')",
    "(cast(l AS decimal(38,0)) * 4) div 2",
    "l + 1 + zero",
    "date_add(date'2024-01-01', 2147483647 + zero) IS NOT NULL",
    "map_from_arrays(array(nullif(zero, 0)), array(1)) IS NOT NULL",
    "array(1, 2)[l] IS NULL",
    "long RLIKE 'x.*y'",
    "long NOT LIKE '%x%y%'",
    "long ILIKE '%x%y%'",
    "long LIKE ANY ('%x%y%', 'z')",
    "regexp_count(long, 'x.*y') > 0",
    "regexp_substr(long, 'x.*y') = 'x'",
    "split(long, ' +x')[0] = ''",
    "regexp_replace(long, ' +x', '') = ''",
    "regexp_extract(long, ' +x', 0) = ''",
    "regexp_instr(long, ' +x') = 0",
    "concat_ws(long, word, word)",
    "array_join(array(word, word), long)",
)
#: Each of these has a value, however it might look.
_GIVE = (
    "try_divide(1, zero)",
    "try_cast(word AS int)",
    "coalesce(try_divide(1, zero), 7)",
    "if(zero = 0, 1, 1 / zero)",
    "zero = 0 OR 1 / zero > 0",
    "l + -1 + 1",
    "-l + 9223372036854775807 + 5",
    "cast(NULL AS int) + 1",
    "left(long, 1000) RLIKE 'x.*y'",
    "element_at(array(1, 2), nullif(zero, 0)) > 0",
    "array(1, 2)[nullif(zero, 0)] IS NOT NULL",
    "element_at(map(1, 2), nullif(zero, 0)) + 1",
    "long RLIKE '^x+$'",
    "long LIKE '%x%'",
    "word ILIKE '%Z%Z%'",
    "concat_ws(left(long, 10), zero, zero)",
)

#: Functions, how often they are put within themselves, and what the first is given.
_NESTED: dict[str, tuple[str, int, str]] = {
    "searches": ("regexp_replace({}, ' +x', '')", 20, "word"),
    "separators": ("left(concat_ws({}, word, word), 4)", 16, "word"),
    "abs": ("abs({})", 5, "cast(l AS decimal(38, 0))"),
    "minus": ("(-{})", 20, "cast(l AS decimal(38, 0))"),
    "sums": ("({} + 1)", 20, "cast(l AS double)"),
    "many abs": ("abs({})", 7, "cast(l AS decimal(38, 0))"),
    "logarithms": ("ln({})", 10, "l"),
    "roots": ("sqrt(coalesce({}, 1D))", 5, "cast(l AS double)"),
    "floors": ("floor(cast({} AS double))", 7, "l"),
    "casts": ("cast(cast({} AS double) AS bigint)", 10, "zero"),
    "quotients": ("cast({} div 2 AS decimal(38, 0))", 5, "cast(l AS decimal(38, 0))"),
    "elements": ("array(1, 2)[{}]", 10, "zero"),
    "nulls": ("nullif({}, 'a')", 5, "word"),
}


def _judged(
    spark: SparkSession, directory: Path, name: str
) -> tuple[str, str | None, list[Any]]:
    """Return what becomes of a case's event, why, and its aggregates' arguments."""
    rules, filter_, outputs, changes = _CASES[name]
    contract = load_contract(str(directory / "order.v1.avsc"))
    contracts = EventContracts(
        (EventContract(contract=contract, writers={contract.schema_id: contract}),)
    )
    pipeline = Pipeline(
        name="p",
        source=Source(
            topic="t",
            schema="order.v1.avsc",
            event_id="id",
            event_time="at",
            watermark_delay=_HOUR,
        ),
        validate=rules,
        filter=filter_,
        outputs=tuple(outputs),
    )
    record = {
        "value": encode(contract, {**_GOOD, **changes}),
        "partition": 0,
        "offset": 0,
        "timestamp": _NOON,
    }
    schema = to_arrow_schema(empty_batch(spark).schema, timezone="UTC")
    records = pa.Table.from_pylist([record], schema)
    # As in ``evaluate``.
    raw = spark.createDataFrame(records).repartition(1)
    recipe = EventFrameRecipe(pipeline=pipeline, contracts=contracts)
    built = recipe.build(raw, [], SourcePlaces(("t",)))
    table = recipe.for_tasks(built, ()).toArrow().combine_chunks()
    decoded = contracts.decoder(("id", "at")).decode(table.column(named.VALUE).chunk(0))
    table = table.append_column(named.EVENT_ID, decoded.columns["id"])
    table = table.append_column(named.EVENT_TIME, decoded.columns["at"])
    judged_by = Rules(
        contracts=contracts,
        latest_event_time_us=2**62,
        rejected={},
        rule_conditions={rule.reason_code: rule.condition for rule in rules},
    )
    events = ClassifiedEvents.undecided(table)
    Case(events=events, is_event=decoded.is_event, rules=judged_by).decide("validate")
    reason, detail = events.reasons.get(0, (None, None))
    arguments = [
        str(table.column(column)[0].as_py())
        for column in table.column_names
        if column.startswith("tallyweir_w")
    ]
    return reason or EventClass(events.classes[0]).name, detail, arguments


def main(directory: Path) -> int:
    """Print the answers."""
    (directory / "order.v1.avsc").write_text(json.dumps(_SCHEMA))
    spark = open_session(directory)
    answers = {
        "judged": {name: _judged(spark, directory, name) for name in _CASES},
        "failing": _found(spark, _FAIL),
        "given": _found(spark, _GIVE),
        "nested": {name: _nested(spark, *case) for name, case in _NESTED.items()},
    }
    sys.stdout.write(json.dumps(answers))
    return 0


def _found(spark: SparkSession, texts: Sequence[str]) -> dict[str, Any]:
    row = pa.table(
        {
            "word": ["%zz["],
            "zero": pa.array([0], pa.int32()),
            "l": [2**63 - 1],
            "long": ["x" * 10_001],
        }
    )
    values, failures = evaluate(spark, texts, row)
    return {
        text: [str(value[0]), failure[0]]
        for text, value, failure in zip(texts, values, failures, strict=True)
    }


def _nested(spark: SparkSession, function: str, times: int, given: str) -> str:
    """Return a value, or the code with which the expression is refused."""
    text = given
    for _ in range(times):
        text = function.format(text)
    try:
        return str(next(iter(_found(spark, [text]).values()))[0])
    except ConfigurationError as error:
        return error.code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
