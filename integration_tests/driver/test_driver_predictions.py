"""A model in the stream: the example of the docs, and a model that refuses a value."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from docs.examples.delay_risk import train
from integration_tests.harness.driver_world import SOURCE, DriverWorld
from integration_tests.harness.readings import Sent, sent
from tallyweir.schemas.codec import encode
from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.pipeline import load_pipeline
from tallyweir.services.local.datasets.flights import read_flights
from tallyweir.spark_jobs.frame.predictor import read_model
from tallyweir.spark_jobs.frame.tests.small_models import write_choosing

_EXAMPLE = Path(train.__file__).parent
_FLIGHTS = 400

_REFUSING = (
    SOURCE
    + """
    predict:
      - model: choose.onnx
        inputs: {{x: amount + divisor}}
        columns: {{score: y}}
    outputs:
      - append: {{table: readings, columns: [event_id, score, choose_version]}}
"""
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_event_is_stored_with_its_prediction_and_the_models_version(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """As the model answers outside of Spark, in rows, windows and the ledger."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    shutil.copy(train.MODEL, tmp_path)
    text = (_EXAMPLE / "pipeline.yaml").read_text()
    world.pipeline_file.write_text(text.replace("flight-departures", world.topic.name))
    contract = load_contract("flight_departure.v1")
    flights = list(read_flights(_FLIGHTS))
    world.topic.send(
        [
            Sent(value=encode(contract, flight), partition=n % 2)
            for n, flight in enumerate(flights)
        ]
    )
    world.run_to_the_end()

    prediction = load_pipeline(_EXAMPLE / "pipeline.yaml").predict[0]
    model = read_model(prediction, _EXAMPLE)
    features = train.features_of(flights)
    feed = {
        name: features[:, [number]].astype(
            object if model.inputs[name].spark_type == "string" else np.int64
        )
        for number, name in enumerate(train.FEATURES)
    }
    (answers,) = model.session.run(["probabilities"], feed)
    wanted = {
        flight["event_id"]: (pytest.approx(risk), model.version)
        for flight, risk in zip(flights, answers[:, 1].tolist(), strict=True)
    }
    rows = world.fetch(
        "SELECT event_id, late_risk, delay_risk_version FROM departures_at_risk"
    )
    assert {event_id: stored for event_id, *stored in rows} == {
        event_id: list(pair) for event_id, pair in wanted.items()
    }
    ((events, mean),) = world.fetch(
        "SELECT sum(flights), sum(mean_risk * flights) / sum(flights) FROM risk_by_hour"
    )
    assert events == _FLIGHTS
    assert float(mean) == pytest.approx(answers[:, 1].mean())
    assert {tuple(batch["lookups"].items()) for batch in world.ledger()} == {
        (("delay_risk.onnx", model.version),)
    }
    world.assert_verified("delay-risk")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
def test_an_event_that_the_model_refuses_is_a_dead_letter(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str
) -> None:
    """Alone; those beside it in the batch have their predictions."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    world.write_pipeline(_REFUSING)
    write_choosing(tmp_path / "choose.onnx")
    amounts = {"a": 0, "b": 1, "c": 40, "d": -1, "e": -7}
    everything = world.topic.send(
        [
            sent(
                world.contract,
                event_id=name,
                amount=amount,
                fate="committed" if 0 <= amount + 1 <= 2 else "PREDICTION_FAILED",
            )
            for name, amount in amounts.items()
        ]
    )
    world.run_to_the_end()
    world.assert_fates(everything)
    assert [("a", 20.0), ("b", 30.0), ("d", 10.0)] == world.fetch(
        "SELECT event_id, score FROM readings ORDER BY event_id"
    )


@pytest.mark.slow
def test_the_exported_model_answers_as_the_trained_one() -> None:
    """What scikit-learn has learned is what the file says; better than guessing."""
    flights = list(read_flights(6_000))
    model = train.train(flights[:5_000])
    exported = onnx.load_model_from_string(train.export(model))
    onnx.checker.check_model(exported)
    assert [one.name for one in exported.graph.input] == list(train.FEATURES)
    assert train.area_under_curve(model, flights[5_000:]) > 0.55
