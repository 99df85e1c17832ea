"""Holds expressions by chance, evaluated as drivers do, against exact evaluation.

``python -m tallyweir.spark_jobs.frame.tests.compared_expressions`` with DIRECTORY,
SEED, EXPRESSIONS and ROWS ends with 0 if all agree. In a process of its own, because
PySpark leaves its sockets to the collector.
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.spark_session import start_spark_session
from tallyweir.spark_jobs.frame.exact_expressions import TriedExpressions
from tallyweir.spark_jobs.frame.tests.random_expressions import (
    random_expression,
    random_rows,
)
from tallyweir.spark_jobs.frame.tests.reference_expressions import (
    Expression,
    FailedError,
    Row,
    as_table,
    as_values,
)
from tallyweir.spark_jobs.frame.typed_expressions import SPARKS_ERRORS, plan_expressions

#: Spark compiles the columns of a query together.
_AT_ONCE = 40
_DEPTH_MAX = 3
_SHOWN_MAX = 10


def main(directory: Path, seed: int, expressions: int, rows: int) -> int:
    """Compare; print what differs."""
    random = Random(seed)
    table = random_rows(random, rows)
    spark = open_session(directory)
    counts: Counter[str] = Counter()
    differences: list[str] = []
    for _ in range(0, expressions, _AT_ONCE):
        drawn = [
            random_expression(random, 1 + random.randrange(_DEPTH_MAX))
            for _ in range(_AT_ONCE)
        ]
        chosen = list(_loaded(spark, drawn, table, differences, counts))
        texts = [one.sql for one in chosen]
        found, failures = evaluate(spark, texts, as_table(table))
        for expression, values, reasons in zip(chosen, found, failures, strict=True):
            differences += _differences(expression, table, values, reasons, counts)
    told = [
        f"seed {seed}: {sum(counts.values())} evaluations, {dict(counts)}",
        *differences[:_SHOWN_MAX],
        f"{len(differences)} differences\n",
    ]
    sys.stdout.write("\n".join(told))
    return 1 if differences else 0


def open_session(directory: Path) -> SparkSession:
    """Start Spark with a driver's settings."""
    return start_spark_session(
        DriverSettings(
            kafka_bootstrap="",
            home_dsn="",
            databases={},
            spark_master="local[1]",
            spark_jars=os.environ["TALLYWEIR_SPARK_JARS"],
            class_archive=None,
            state_directory=directory,
            batch_offsets_max=1,
            driver_memory="1g",
        ),
        name="expressions",
    )


def evaluate(
    spark: SparkSession, texts: Sequence[str], rows: pa.Table
) -> tuple[list[list[Any]], list[list[str | None]]]:
    """Return the values of expressions on rows, and why they have none."""
    # Of rows that Spark has at hand it computes while it plans, without compiling.
    events = spark.createDataFrame(rows).repartition(1)
    tried = TriedExpressions(events)
    columns: dict[str, Column] = {}
    for number, text in enumerate(texts):
        columns[f"value_{number}"] = tried.value(text)
        failure = tried.failure(text, "It")
        columns[f"failure_{number}"] = (
            F.lit(None).cast("string") if failure is None else failure
        )
    found = tried.add_to(events).withColumns(columns).select(*columns).toArrow()
    numbers = range(len(texts))
    return (
        [as_values(found.column(f"value_{number}")) for number in numbers],
        [found.column(f"failure_{number}").to_pylist() for number in numbers],
    )


def _loaded(
    spark: SparkSession,
    expressions: Sequence[Expression],
    rows: Sequence[Row],
    differences: list[str],
    counts: Counter[str],
) -> Iterator[Expression]:
    """Yield those that a driver would load: no constant in them fails."""
    schema = spark.createDataFrame(as_table(rows)).schema
    frame = spark.createDataFrame([], schema)
    for expression in expressions:
        try:
            plan_expressions(frame, [expression.sql])
        except SPARKS_ERRORS as exc:
            counts["refused"] += 1
            if not any(_fails(expression, row) for row in rows):
                differences.append(f"{expression.sql} is refused: {exc}")
        else:
            yield expression


def _fails(expression: Expression, row: Row) -> bool:
    try:
        expression.compute(row)
    except FailedError:
        return True
    return False


def are_equal(one: object, other: object) -> bool:
    """Tell whether two values are the same; NaN is."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and one == other


def _differences(
    expression: Expression,
    rows: Sequence[Row],
    values: Sequence[Any],
    reasons: Sequence[str | None],
    counts: Counter[str],
) -> list[str]:
    found = []
    for row, value, reason in zip(rows, values, reasons, strict=True):
        expected: object
        try:
            expected = expression.compute(row)
            failure = None
        except FailedError as error:
            expected, failure = None, str(error)
        counts["value" if failure is None else failure] += 1
        if failure is None:
            agree = reason is None and are_equal(value, expected)
        else:
            agree = reason is not None and failure in reason
        if not agree:
            read = {name: one for name, one in row.items() if name in expression.sql}
            found.append(
                f"{expression.sql} of {read}: {value!r} ({reason}), "
                f"and not {expected!r} ({failure})"
            )
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
