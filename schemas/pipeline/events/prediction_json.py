"""A prediction as JSON, for the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.pipeline.events.prediction import Prediction


def prediction_to_json(prediction: Prediction) -> dict[str, Any]:
    """Describe a prediction so that ``prediction_from_json`` returns an equal one."""
    return {
        "model": prediction.model,
        "inputs": [[name, list(given)] for name, given in prediction.inputs.items()],
        "columns": [list(pair) for pair in prediction.columns.items()],
        "version": prediction.version,
    }


def prediction_from_json(definition: Mapping[str, Any]) -> Prediction:
    """Build the prediction that ``prediction_to_json`` described."""
    return Prediction(
        model=definition["model"],
        inputs={name: tuple(given) for name, given in definition["inputs"]},
        columns=dict(definition["columns"]),
        version=definition["version"],
    )
