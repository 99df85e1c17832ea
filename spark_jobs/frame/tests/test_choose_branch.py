"""Which database Spark chooses for a row, by the values of its columns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark]

# In a process of its own, because PySpark leaves its sockets to the collector.
_PROGRAM = """
import json
from pyspark.sql import SparkSession
from tallyweir.spark_jobs.frame.event_frame import choose_branch

local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=local).getOrCreate()
values = spark.sql('''
    SELECT * FROM VALUES
        ("AA", 7), ("UA", NULL), (NULL, NULL), ("", 0), ("caf\u00e9", -1)
    AS t(carrier, flight)
''')
both = ["carrier", "flight"]
fixed = values.select(choose_branch(["carrier"], 1000), choose_branch(both, 1000))
keys = spark.range(1000).selectExpr("string(id) AS a", "id % 7 AS b")
places = keys.select(choose_branch(["a", "b"], 5).alias("ours"), "a", "b").selectExpr(
    "ours", "ours = pmod(xxhash64(a, b), 5) AS same"
)
equal = {
    "zeros": "SELECT explode(array(0D, -1 * 0D)) AS x",
    "nans": "SELECT explode(array(double('NaN'), -double('NaN'))) AS x",
    "decimals": "SELECT explode(array(1.5BD, 1.500BD)) AS x",
}
print(json.dumps({
    "fixed": [list(row) for row in fixed.collect()],
    "places": [list(row) for row in places.distinct().collect()],
    "equal": {
        name: spark.sql(query).select(choose_branch(["x"], 1000003)).distinct().count()
        for name, query in equal.items()
    },
}))
"""


@pytest.fixture(scope="module")
def answers() -> Any:  # noqa: ANN401 - JSON
    """What one Spark session says."""
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=Path(__file__).parents[3],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(run.stdout)


def test_a_row_has_one_place_for_ever(answers: Any) -> None:  # noqa: ANN401 - JSON
    """The places of such keys are in users' tables: no release may choose others.

    The numbers are those of another implementation of XXH64, as the manual says it.
    """
    fixed = [[579, 410], [815, 815], [42, 42], [652, 987], [655, 952]]
    assert fixed == answers["fixed"]


def test_a_user_finds_a_row_by_spark_sql(answers: Any) -> None:  # noqa: ANN401 - JSON
    """The expression that the manual gives chooses the same, and uses every place."""
    assert [[place, True] for place in range(5)] == sorted(answers["places"])


def test_values_that_postgres_calls_equal_have_one_place(
    answers: Any,  # noqa: ANN401 - JSON
) -> None:
    """Else a window's group would be in two databases."""
    assert {"zeros": 1, "nans": 1, "decimals": 1} == answers["equal"]
