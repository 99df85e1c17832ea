"""A prediction follows from what was measured, and says what stops it from growing."""

from __future__ import annotations

import pytest

from services.dev.bench.prediction import Constants, constants_of, predict

_COST = {
    "events_per_batch": 250_000,
    "seconds_per_batch": {"plan": 0.1, "stage": 1.5, "publish": 0.25},
    "cpu_seconds_per_million": {
        "broker": 1.0,
        "jvm": 6.0,
        "python": 2.0,
        "driver": 0.2,
        "postgres": 2.0,
    },
}


def _constants() -> Constants:
    # 250,000 events in 2 s, of which 1.5 are staging.
    return constants_of(125_000, _COST, cores=2)


def _rates(constants: Constants, nodes: list[int]) -> list[object]:
    predicted = predict(constants, nodes)["nodes"]
    assert isinstance(predicted, list)
    return [(one["events_per_second"], one["bound_by"]) for one in predicted]


def test_constants_are_shares_of_the_batch_that_was_measured() -> None:
    """Publishing takes a core of Postgres, and the rest of its work is staging."""
    constants = _constants()
    assert 0.5 == constants.serial_seconds
    assert 1.5 == constants.staging_seconds
    # Of Postgres' 2 us per event 1 is publishing: 8 of 10 are left to Spark.
    assert constants.spark_share == pytest.approx(8 / 10)
    assert (1_000_000, 2_000_000) == (
        constants.postgres_limit,
        constants.broker_limit,
    )


def test_nodes_divide_staging_and_nothing_else() -> None:
    """250,000 events in 0.5 s and 1.2 s by the number of nodes."""
    assert _rates(_constants(), [1, 2, 4]) == [
        (round(250_000 / 1.7), "batches"),
        (round(250_000 / 1.1), "batches"),
        (round(250_000 / 0.8), "batches"),
    ]
    assert predict(_constants())["serial_limit"] == 500_000


def test_a_server_that_is_full_bounds_the_rate() -> None:
    """More nodes for Spark do not help it."""
    slow = {**_COST["cpu_seconds_per_million"], "postgres": 8.0}  # type: ignore[dict-item]
    constants = constants_of(
        125_000, {**_COST, "cpu_seconds_per_million": slow}, cores=2
    )
    assert [(250_000, "postgres")] == _rates(constants, [64])
