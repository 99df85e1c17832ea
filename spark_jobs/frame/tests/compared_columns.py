"""Holds computed columns by chance, through the event frame, against exact evaluation.

``python -m tallyweir.spark_jobs.frame.tests.compared_columns`` with DIRECTORY, SEED,
PIPELINES and ROWS ends with 0 if all agree. In a process of its own, because PySpark
leaves its sockets to the collector.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema

from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.event_contracts import EventContract, EventContracts
from tallyweir.schemas.pipeline import Append, Pipeline, Source
from tallyweir.schemas.pipeline.expressions.expressions import reads_any
from tallyweir.spark_jobs.frame.event_frame import EventFrameRecipe
from tallyweir.spark_jobs.frame.tests.compared_expressions import (
    are_equal,
    open_session,
)
from tallyweir.spark_jobs.frame.tests.random_expressions import (
    random_expression,
    random_rows,
)
from tallyweir.spark_jobs.frame.tests.reference_expressions import (
    COLUMNS,
    Expression,
    FailedError,
    Row,
    Type,
    as_table,
    as_values,
)
from tallyweir.spark_jobs.frame.typed_expressions import SPARKS_ERRORS, plan_expressions
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.kafka_source import empty_batch
from tallyweir.spark_jobs.source.source_places import SourcePlaces

_COLUMNS = 16
_DEPTH_MAX = 2
_SHOWN_MAX = 10
_NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
_DAY = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SOURCE = Source(
    topic="t",
    schema="row.v1.avsc",
    event_id="id",
    event_time="time",
    watermark_delay=dt.timedelta(hours=1),
)
#: Avro has no integers as small, so these are computed of others themselves.
_SMALL = {"t8": "CAST(t8_ AS tinyint)", "s16": "CAST(s16_ AS smallint)"}
_AVRO: Mapping[str, object] = {
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "double": "double",
    "float": "float",
    "string": "string",
    "boolean": "boolean",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
}


def main(directory: Path, seed: int, pipelines: int, rows: int) -> int:
    """Compare; print what differs."""
    random = Random(seed)
    spark = open_session(directory)
    contracts = _contracts(directory)
    counts: Counter[str] = Counter()
    differences: list[str] = []
    for _ in range(pipelines):
        table = random_rows(random, rows)
        compute = _random_columns(random, spark, table)
        found = _computed(spark, contracts, compute, table)
        differences += _differences(compute, table, found, counts)
    told = [
        f"seed {seed}: {sum(counts.values())} evaluations, {dict(counts)}",
        *differences[:_SHOWN_MAX],
        f"{len(differences)} differences\n",
    ]
    sys.stdout.write("\n".join(told))
    return 1 if differences else 0


def _random_columns(
    random: Random, spark: SparkSession, rows: Sequence[Row]
) -> dict[str, Expression]:
    """Draw columns each of which may read those before it."""
    frame = spark.createDataFrame(as_table(rows))
    compute: dict[str, Expression] = {}
    try:
        while len(compute) < _COLUMNS:
            name = f"c{len(compute)}"
            drawn = random_expression(random, random.randrange(_DEPTH_MAX + 1))
            try:
                plan_expressions(spark.createDataFrame([], frame.schema), [drawn.sql])
            except SPARKS_ERRORS:
                # The other comparison looks at what a driver refuses.
                continue
            frame = frame.withColumn(name, F.expr(drawn.sql))
            compute[name] = drawn
            # What is drawn after it may read it.
            COLUMNS[name] = drawn.type
    finally:
        for name in compute:
            COLUMNS.pop(name, None)
    return compute


def _computed(
    spark: SparkSession,
    contracts: EventContracts,
    compute: Mapping[str, Expression],
    rows: Sequence[Row],
) -> pa.Table:
    """Return what tasks get of records with the rows."""
    pipeline = Pipeline(
        name="p",
        source=_SOURCE,
        compute=_SMALL | {name: one.sql for name, one in compute.items()},
        outputs=(Append(table="t"),),
    )
    (contract,) = (one.contract for one in contracts.each)
    records = [
        {
            "value": encode(contract, _record(row, number)),
            "partition": 0,
            "offset": number,
            "timestamp": _NOON,
        }
        for number, row in enumerate(rows)
    ]
    schema = to_arrow_schema(empty_batch(spark).schema, timezone="UTC")
    # Of rows that Spark has at hand it computes while it plans, without compiling.
    raw = spark.createDataFrame(pa.Table.from_pylist(records, schema)).repartition(1)
    recipe = EventFrameRecipe(pipeline=pipeline, contracts=contracts)
    built = recipe.build(raw, [], SourcePlaces(("t",)))
    return recipe.for_tasks(built, tuple(compute)).toArrow().sort_by(named.OFFSET)


def _contracts(directory: Path) -> EventContracts:
    fields = [
        {"name": "id", "type": "string"},
        {"name": "time", "type": _AVRO["timestamp"]},
        *(
            {
                "name": f"{name}_" if name in _SMALL else name,
                "type": ["null", _avro_type(kind)],
                "default": None,
            }
            for name, kind in COLUMNS.items()
        ),
    ]
    path = directory / "row.v1.avsc"
    path.write_text(json.dumps({"type": "record", "name": "Row", "fields": fields}))
    contract = load_contract(str(path))
    return EventContracts(
        (EventContract(contract=contract, writers={contract.schema_id: contract}),)
    )


def _avro_type(kind: Type) -> object:
    if kind.name != "decimal":
        return _AVRO[kind.name]
    digits = {"precision": kind.precision, "scale": kind.scale}
    return {"type": "bytes", "logicalType": "decimal", **digits}


def _record(row: Row, number: int) -> dict[str, Any]:
    values = as_table([row])
    return {"id": f"e{number}", "time": _NOON} | {
        f"{name}_" if name in _SMALL else name: _as_avro(
            kind, row[name], values.column(name)
        )
        for name, kind in COLUMNS.items()
    }


def _as_avro(kind: Type, value: Any, column: pa.ChunkedArray) -> Any:  # noqa: ANN401 - of the type
    if value is None:
        return None
    match kind.name:
        case "date":
            return _DAY + dt.timedelta(days=value)
        case "timestamp":
            return _EPOCH + dt.timedelta(microseconds=value)
        case "decimal":
            return column[0].as_py()
    return value


def _differences(
    compute: Mapping[str, Expression],
    rows: Sequence[Row],
    found: pa.Table,
    counts: Counter[str],
) -> list[str]:
    """Compare; an event has the failure of the first column that fails.

    A column that reads one that has failed is nobody's matter: the event is dead.
    """
    columns = {name: as_values(found.column(name)) for name in compute}
    told = found.column(named.UNCOMPUTED).to_pylist()
    differences = []
    for number, row in enumerate(rows):
        values = dict(row)
        failed: dict[str, str] = {}
        for name, one in compute.items():
            if reads_any(one.sql, failed):
                failed[name] = ""
                continue
            try:
                values[name] = one.compute(values)
            except FailedError as error:
                values[name], failed[name] = None, str(error)
            counts["dead" if name in failed else "value"] += 1
            if not are_equal(columns[name][number], values[name]):
                differences.append(
                    f"{name}: {one.sql} of {values}: {columns[name][number]!r}"
                )
        begin, words = "", ""
        if failed:
            name, words = next(iter(failed.items()))
            begin = f"The computed column {name}, "
        detail = told[number] or ""
        if bool(detail) != bool(failed) or not (
            detail.startswith(begin) and words in detail
        ):
            differences.append(f"{detail!r} and not {begin!r} {words!r} of {values}")
    return differences


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
