"""The keys of a prediction in a pipeline file."""

from __future__ import annotations

from schemas.pipeline.document.yaml_document import Section
from schemas.pipeline.events.prediction import Prediction


def read_prediction(section: Section) -> Prediction | None:
    """Read a prediction; None, with problems reported, if it is wrong."""
    section.allow("model", "inputs", "columns", "version")
    section.require("model", "inputs", "columns")
    model = section.text("model")
    inputs = section.section("inputs")
    columns = section.section("columns")
    version = section.text("version")
    if inputs is None or columns is None:
        return None
    return section.report.complete(
        section.at,
        Prediction,
        {"model": "unnamed.onnx"},
        model=model,
        inputs={name: inputs.one_or_more(name) or () for name in inputs},
        columns={name: columns.text(name) or "" for name in columns},
        version=version or "",
    )
