"""Models in ONNX: what they take and answer, checked before anything runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from onnx import TensorProto

from tallyweir.schemas.pipeline import PipelineError, Prediction
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.frame.predictor import (
    Model,
    loaded_once,
    predict_each,
    read_model,
)
from tallyweir.spark_jobs.frame.tests.small_models import write_choosing, write_doubling

_PREDICTION = Prediction(
    model="double.onnx", inputs={"x": ("a",)}, columns={"twice": "y"}
)


def test_a_model_answers_for_each_event(tmp_path: Path) -> None:
    """A missing number is NaN to the model, and so is its answer."""
    write_doubling(tmp_path / "double.onnx")
    model = read_model(_PREDICTION, tmp_path)
    answers = predict_each(model, {"x": [pa.array([1.5, None, -2.0])]})
    first, missing, last = (row["twice"] for row in answers.to_pylist())
    assert (first, last) == (3.0, -4.0)
    assert missing != missing  # noqa: PLR0124 - only NaN is not itself


def test_an_event_without_a_needed_input_has_no_prediction(tmp_path: Path) -> None:
    """A whole number has no value for missing, so the model is not asked."""
    write_doubling(tmp_path / "double.onnx", TensorProto.INT64)
    model = read_model(_PREDICTION, tmp_path)
    for given, wanted in (([1, None, 3], [2, None, 6]), ([None, None], [None, None])):
        answers = predict_each(model, {"x": [pa.array(given, pa.int64())]})
        assert [row["twice"] for row in answers.to_pylist()] == wanted
        assert [row["error"] for row in answers.to_pylist()] == [None] * len(given)


def test_a_refused_value_costs_its_own_event_only(tmp_path: Path) -> None:
    """The others are predicted as if it were not there."""
    write_choosing(tmp_path / "double.onnx")
    model = read_model(_PREDICTION, tmp_path)
    given = [0, 1, 7, 2, None, -9, 0]
    answers = predict_each(model, {"x": [pa.array(given, pa.int64())]}).to_pylist()
    assert [row["twice"] for row in answers] == [10, 20, None, 30, None, None, 10]
    refused = [position for position, row in enumerate(answers) if row["error"]]
    assert refused == [2, 5]


@pytest.mark.parametrize(
    ("inputs", "columns", "saw"),
    [
        ({"z": ("a",)}, {"twice": "y"}, "its input 'x' is not given"),
        ({"x": ("a",), "z": ("a",)}, {"twice": "y"}, "its input 'z' does not exist"),
        ({"x": ("a", "b")}, {"twice": "y"}, "its input 'x' takes 1 values, not 2"),
        ({"x": ("a",)}, {"twice": "w"}, "it has no output 'w' for twice"),
        ({"x": ("a",)}, {"twice": "y[1]"}, "its output 'y' has 1 values"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_at_the_start(
    tmp_path: Path,
    inputs: dict[str, tuple[str, ...]],
    columns: dict[str, str],
    saw: str,
) -> None:
    """With the names that there are."""
    write_doubling(tmp_path / "double.onnx")
    prediction = Prediction(model="double.onnx", inputs=inputs, columns=columns)
    with pytest.raises(ConfigurationError) as refusal:
        read_model(prediction, tmp_path)
    assert refusal.value.code == "MODEL_MISMATCH"
    assert saw in refusal.value.saw


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    """Missing, or something else."""
    with pytest.raises(ConfigurationError, match="MODEL_MISSING"):
        read_model(_PREDICTION, tmp_path)
    (tmp_path / "double.onnx").write_bytes(b"not a model")
    with pytest.raises(ConfigurationError, match="MODEL_UNREADABLE"):
        read_model(_PREDICTION, tmp_path)


def test_formats_that_run_code_are_refused() -> None:
    """A pickle of scikit-learn is a program."""
    with pytest.raises(PipelineError, match="Only ONNX models are supported"):
        Prediction(model="m.pkl", inputs={"x": ("a",)}, columns={"p": "y"})


def test_a_process_loads_a_model_once(tmp_path: Path) -> None:
    """And a changed one anew."""
    write_doubling(tmp_path / "double.onnx")
    content = (tmp_path / "double.onnx").read_bytes()
    reads: list[str] = []

    def loaded(version: str) -> Model:
        def read() -> bytes:
            reads.append(version)
            return content

        return loaded_once(version, _PREDICTION, "double.onnx", read)

    assert loaded("one") is loaded("one")
    assert loaded("two") is not loaded("one")
    assert reads == ["one", "two"]
