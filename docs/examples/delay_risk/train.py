"""Train the example's model: will a flight arrive more than 15 minutes late?

From the project's root, with the development environment::

    .venv/bin/python -m docs.examples.delay_risk.train

writes ``delay_risk.onnx`` beside this file. It learns from the flights of January to
September 2013, by what is known before departure, and is judged by the rest of the
year. The same flights give the same model.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import Int64TensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

from tallyweir.services.local.datasets.flights import read_flights

MODEL = Path(__file__).with_name("delay_risk.onnx")
LATE_MINUTES = 15
#: The model's inputs in order; ``pipeline.yaml`` says how each comes from an event.
FEATURES = ("carrier", "origin", "destination", "hour", "weekday")
_TEXTS = FEATURES[:3]
_LEARNED_UNTIL = dt.datetime(2013, 10, 1, tzinfo=dt.UTC)

Matrix = npt.NDArray[Any]


def features_of(flights: Iterable[Mapping[str, Any]]) -> Matrix:
    """Compute what the model sees of each flight, as ``pipeline.yaml`` does in SQL."""
    rows = [
        (
            *(flight[name] for name in _TEXTS),
            flight["scheduled_at"].hour,
            # Sunday is 1, as in Spark SQL's dayofweek.
            flight["scheduled_at"].isoweekday() % 7 + 1,
        )
        for flight in flights
    ]
    return np.array(rows, dtype=object)


def is_late(flight: Mapping[str, Any]) -> bool:
    """Tell whether a flight that arrived did so late."""
    return bool(flight["arr_delay_minutes"] > LATE_MINUTES)


def train(flights: Iterable[Mapping[str, Any]]) -> Pipeline:
    """Fit the model to flights that have arrived."""
    arrived = [flight for flight in flights if flight["arr_delay_minutes"] is not None]
    encoder = ColumnTransformer(
        [
            (name, OneHotEncoder(handle_unknown="ignore"), [position])
            for position, name in enumerate(FEATURES)
        ]
    )
    model = Pipeline(
        [("encode", encoder), ("classify", LogisticRegression(max_iter=1000))]
    )
    return model.fit(features_of(arrived), [is_late(flight) for flight in arrived])


def export(model: Pipeline) -> bytes:
    """Write the model in ONNX, each feature an input of its own."""
    kinds = [
        (
            name,
            StringTensorType([None, 1])
            if name in _TEXTS
            else Int64TensorType([None, 1]),
        )
        for name in FEATURES
    ]
    exported = convert_sklearn(
        model,
        initial_types=kinds,
        # A tensor instead of a list of dictionaries.
        options={id(model): {"zipmap": False}},
    )
    content: bytes = exported.SerializeToString()
    return content


def area_under_curve(model: Pipeline, flights: Iterable[Mapping[str, Any]]) -> float:
    """Judge the model: 0.5 is guessing, 1 is certainty."""
    arrived = [flight for flight in flights if flight["arr_delay_minutes"] is not None]
    risks = model.predict_proba(features_of(arrived))[:, 1]
    return float(roc_auc_score([is_late(flight) for flight in arrived], risks))


def main() -> None:
    """Train on what is before October, judge by what is after, write the model."""
    flights = list(read_flights())
    model = train(f for f in flights if _scheduled(f) < _LEARNED_UNTIL)
    judged = area_under_curve(
        model, (f for f in flights if _scheduled(f) >= _LEARNED_UNTIL)
    )
    MODEL.write_bytes(export(model))
    print(f"{MODEL.name}: area under the curve {judged:.3f}")  # noqa: T201 - its result


def _scheduled(flight: Mapping[str, Any]) -> dt.datetime:
    scheduled_at = flight["scheduled_at"]
    assert isinstance(scheduled_at, dt.datetime)
    return scheduled_at


if __name__ == "__main__":
    main()
