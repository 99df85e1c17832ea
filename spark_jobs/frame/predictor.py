"""Read ONNX models once, and add their predictions to events as columns.

Spark's Python workers run a model on Arrow batches, only on values that it takes. An
ONNX file is data, so reading an untrusted file runs no code from it. The file says what
a model takes and answers; the driver checks both when it starts.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

from tallyweir.schemas.pipeline.events.prediction import ModelOutput, Prediction
from tallyweir.sinks.protocol.errors import ConfigurationError

#: The field that says why a model refused an event; null if it did not.
ERROR = "error"


class Predictor:
    """Adds the columns of one prediction to the events.

    The driver sends the model to each executor once, and each Python worker loads it
    once.

    Args:
        spark: The session.
        model: The model at the driver's start; it stays the same until the driver ends.
    """

    def __init__(self, spark: SparkSession, model: Model) -> None:
        self._model = model
        prediction, path, version = model.prediction, model.path, model.version
        content = spark.sparkContext.broadcast(model.content)
        widths = {name: len(given) for name, given in prediction.inputs.items()}

        def predict(batches: Iterable[pa.StructArray]) -> Iterator[pa.Array]:
            loaded = loaded_once(version, prediction, path, lambda: content.value)
            for batch in batches:
                arrays = iter(batch.flatten())
                yield predict_each(
                    loaded,
                    {n: [next(arrays) for _ in range(w)] for n, w in widths.items()},
                )

        fields = [f"`{c}` {model.spark_type_of(c)}" for c in prediction.columns]
        self._udf = arrow_udf(
            predict, f"{', '.join(fields)}, {ERROR} string", ArrowUDFType.SCALAR_ITER
        ).asNondeterministic()

    @property
    def prediction(self) -> Prediction:
        """The pipeline's section for the model."""
        return self._model.prediction

    @property
    def version(self) -> str:
        """The model's version."""
        return self._model.version

    @property
    def inputs(self) -> Sequence[tuple[str, str, str]]:
        """The model's inputs in order, each with its name, Spark SQL and type."""
        return [
            (name, expression, self._model.inputs[name].spark_type)
            for name, expressions in self.prediction.inputs.items()
            for expression in expressions
        ]

    def add(
        self, events: DataFrame, inputs: Sequence[Column], error_column: str
    ) -> DataFrame:
        """Return the events with the new columns, and why the model refused an event.

        The answer is the same for every attempt. It is declared nondeterministic all
        the same, so that Spark's optimizer does not run the model once for each column
        of its answer.

        Args:
            events: The events to predict for.
            inputs: One column for each of ``inputs``, of its type.
            error_column: The column for the reason of a refusal.
        """
        prediction = self.prediction
        named = [one.alias(f"input_{number}") for number, one in enumerate(inputs)]
        answered = events.withColumn("tallyweir_answer", self._udf(F.struct(*named)))
        answer = F.col("tallyweir_answer")
        columns = {c: answer.getField(c) for c in prediction.columns}
        columns[prediction.version] = F.lit(self.version)
        columns[error_column] = answer.getField(ERROR)
        return answered.withColumns(columns).drop("tallyweir_answer")


def predict_each(
    model: Model, columns: Mapping[str, Sequence[pa.Array]]
) -> pa.StructArray:
    """Predict; if the model refuses a value, report it only for that event.

    Returns:
        One struct per event: the new columns, and ``error``.
    """
    rows = len(next(iter(columns.values()))[0])
    try:
        answers = model.run(columns)
        errors = pa.nulls(rows, pa.string())
    except ValueError as refused:
        if rows > 1:
            halves = [
                predict_each(
                    model,
                    {n: [a[part] for a in arrays] for n, arrays in columns.items()},
                )
                for part in (slice(0, rows // 2), slice(rows // 2, None))
            ]
            return pa.concat_arrays(halves)
        nothing = {n: [pa.nulls(1, a.type) for a in g] for n, g in columns.items()}
        answers = {
            column: pa.nulls(1, array.type)
            for column, array in model.run(nothing).items()
        }
        errors = pa.array([str(refused)], pa.string())
    return pa.StructArray.from_arrays(
        [*answers.values(), errors], names=[*answers, ERROR]
    )


#: Digits of the file's SHA-256 that name its version: enough to avoid collisions.
_VERSION_DIGITS = 16
#: The largest model: the driver broadcasts it, and every worker keeps it in memory.
MODEL_BYTES_MAX = 512 * 1024 * 1024

#: The element types of tensors, mapped to Spark's types and then to numpy's.
_SPARK_TYPES = {
    "tensor(float)": "float",
    "tensor(double)": "double",
    "tensor(int64)": "bigint",
    "tensor(int32)": "int",
    "tensor(string)": "string",
    "tensor(bool)": "boolean",
}
_NUMPY_TYPES: Mapping[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(string)": object,
    "tensor(bool)": np.bool_,
}
#: These types have a value for "missing", and models are trained with it.
_HAS_NAN = frozenset({"tensor(float)", "tensor(double)"})


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of a model: its element type, and its values per event.

    ``width`` is None if an event has one value and the tensor has one dimension.
    """

    kind: str
    width: int | None

    @property
    def spark_type(self) -> str:
        """The Spark type of a column of this tensor."""
        return _SPARK_TYPES[self.kind]


@dataclass(frozen=True)
class Model:
    """A model as it was when the driver started.

    Attributes:
        path: The file's path, for messages.
        content: The file's content.
        prediction: The pipeline's section for the model.
    """

    path: str
    content: bytes
    prediction: Prediction

    @cached_property
    def version(self) -> str:
        """The beginning of the SHA-256 of the file, in hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()[:_VERSION_DIGITS]

    @cached_property
    def session(self) -> onnxruntime.InferenceSession:
        """The model, ready to run in one thread, because Spark runs tasks in parallel.

        Raises:
            ConfigurationError: ``MODEL_UNREADABLE``.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            return onnxruntime.InferenceSession(
                self.content, options, providers=["CPUExecutionProvider"]
            )
        # The runtime has a separate exception for each reason, and all are private.
        except Exception as error:
            raise ConfigurationError(
                "MODEL_UNREADABLE",
                saw=f"{self.path} cannot be loaded: {_first_line(error)}",
                why="The pipeline's columns include its predictions.",
                fix="Export the model again, to ONNX.",
            ) from error

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """The model's inputs, by name."""
        return {one.name: _tensor(one) for one in self.session.get_inputs()}

    @cached_property
    def outputs(self) -> dict[str, Tensor]:
        """The model's outputs, by name."""
        return {one.name: _tensor(one) for one in self.session.get_outputs()}

    def check(self) -> None:
        """Compare the pipeline's section with the model's inputs and outputs.

        Raises:
            ConfigurationError: ``MODEL_UNREADABLE`` or ``MODEL_MISMATCH``.
        """
        given = self.prediction.inputs
        for name in sorted({*given, *self.inputs}):
            if name not in self.inputs or name not in given:
                missing = "is not given" if name in self.inputs else "does not exist"
                raise self._mismatch(
                    f"its input {name!r} {missing}",
                    f"Its inputs are {', '.join(self.inputs)}.",
                )
            width, tensor = len(given[name]), self.inputs[name]
            if tensor.kind not in _SPARK_TYPES:
                raise self._mismatch(
                    f"its input {name!r} is {tensor.kind}",
                    f"Export it with one of {', '.join(_SPARK_TYPES)}.",
                )
            if width != (tensor.width or 1):
                raise self._mismatch(
                    f"its input {name!r} takes {tensor.width or 1} values, not {width}",
                    "Write one expression for each.",
                )
        for column in self.prediction.columns:
            self._check_output(column, self.prediction.output_of(column))

    def run(self, columns: Mapping[str, Sequence[pa.Array]]) -> dict[str, pa.Array]:
        """Predict one value per event and new column; null if an input is null.

        A null floating-point input becomes NaN, which models use for a missing value.

        Args:
            columns: The columns of each input of the model, as Spark evaluated them.

        Raises:
            ValueError: The model refuses a value.
        """
        rows = len(next(iter(columns.values()))[0])
        complete = np.ones(rows, dtype=np.bool_)
        for name, arrays in columns.items():
            if self.inputs[name].kind not in _HAS_NAN:
                for array in arrays:
                    complete &= np.asarray(array.is_valid())
        feed = {
            name: self._feed(
                name, [array.filter(pa.array(complete)) for array in given]
            )
            for name, given in columns.items()
        }
        wanted = {c: self.prediction.output_of(c) for c in self.prediction.columns}
        answers: dict[str, npt.NDArray[Any]] = {}
        if complete.any():
            names = sorted({output.name for output in wanted.values()})
            try:
                found = self.session.run(names, feed)
            except Exception as error:
                raise ValueError(_first_line(error)) from error
            answers = dict(zip(names, found, strict=True))
        return {
            column: self._column(output, answers.get(output.name), complete)
            for column, output in wanted.items()
        }

    def spark_type_of(self, column: str) -> str:
        """Return the type of a new column."""
        return self.outputs[self.prediction.output_of(column).name].spark_type

    def _feed(self, name: str, arrays: Sequence[pa.Array]) -> npt.NDArray[Any]:
        tensor = self.inputs[name]
        dtype = _NUMPY_TYPES[tensor.kind]
        if tensor.kind in _HAS_NAN:
            arrays = [array.fill_null(float("nan")) for array in arrays]
        values = [
            array.to_numpy(zero_copy_only=False).astype(dtype) for array in arrays
        ]
        return values[0] if tensor.width is None else np.column_stack(values)

    def _column(
        self,
        output: ModelOutput,
        answer: npt.NDArray[Any] | None,
        complete: npt.NDArray[np.bool_],
    ) -> pa.Array:
        kind = pa.from_numpy_dtype(
            np.str_
            if self.outputs[output.name].spark_type == "string"
            else _NUMPY_TYPES[self.outputs[output.name].kind]
        )
        if answer is None:
            return pa.nulls(len(complete), kind)
        if answer.ndim > 1:
            answer = answer[:, output.index or 0]
        values = pa.array(answer, kind)
        if complete.all():
            return values
        # The position of each event among the predicted ones.
        places = np.cumsum(complete) - 1
        return values.take(pa.array(places, mask=~complete))

    def _check_output(self, column: str, output: ModelOutput) -> None:
        tensor = self.outputs.get(output.name)
        if tensor is None:
            raise self._mismatch(
                f"it has no output {output.name!r} for {column}",
                f"Its outputs are {', '.join(self.outputs)}.",
            )
        if tensor.kind not in _SPARK_TYPES:
            raise self._mismatch(
                f"its output {output.name!r} is {tensor.kind}",
                "Export it as a tensor; skl2onnx does so with the option zipmap=False.",
            )
        width = tensor.width or 1
        if width > 1 and output.index is None:
            raise self._mismatch(
                f"its output {output.name!r} has {width} values for each event",
                f"Write {output.name}[0], or another index.",
            )
        if output.index is not None and output.index >= width:
            raise self._mismatch(
                f"its output {output.name!r} has {width} values, counted from 0",
                f"Write an index below {width}.",
            )

    def _mismatch(self, saw: str, fix: str) -> ConfigurationError:
        return ConfigurationError(
            "MODEL_MISMATCH",
            saw=f"{self.path} and the pipeline do not fit: {saw}.",
            why="The pipeline would feed the model or read its results wrongly.",
            fix=fix,
        )


def read_model(prediction: Prediction, beside: Path) -> Model:
    """Read the model of a prediction and check that it fits.

    Args:
        prediction: The pipeline's section for the model.
        beside: The pipeline file or its folder; relative paths start there.

    Raises:
        ConfigurationError: ``MODEL_MISSING``, ``MODEL_UNREADABLE`` or
            ``MODEL_MISMATCH``.
    """
    path = (beside if beside.is_dir() else beside.parent) / prediction.model
    try:
        with path.open("rb") as file:
            content = file.read(MODEL_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(
            "MODEL_MISSING",
            saw=f"{path} cannot be read ({error.strerror}).",
            why="The pipeline makes its predictions with this model.",
            fix="Put the model there, or correct the path in predict.",
        ) from error
    if len(content) > MODEL_BYTES_MAX:
        raise ConfigurationError(
            "MODEL_UNREADABLE",
            saw=f"{path} is larger than {MODEL_BYTES_MAX:,} bytes.",
            why="Every worker keeps the model in memory.",
            fix="Use a smaller model.",
        )
    model = Model(path=str(path), content=content, prediction=prediction)
    model.check()
    return model


_loaded: dict[tuple[str, str], Model] = {}
_loading = threading.Lock()


def loaded_once(
    version: str, prediction: Prediction, path: str, read: Callable[[], bytes]
) -> Model:
    """Return the model of this process; the first task loads it.

    Args:
        version: The model's version.
        prediction: The pipeline's section for the model.
        path: The path from which the driver read it, for messages.
        read: Returns the file's content; called once per process.
    """
    key = (version, repr(prediction))
    with _loading:
        if key not in _loaded:
            _loaded[key] = Model(path=path, content=read(), prediction=prediction)
        return _loaded[key]


def _tensor(described: Any) -> Tensor:  # noqa: ANN401 - onnxruntime has no types
    dimensions = described.shape or []
    if len(dimensions) < 2:  # noqa: PLR2004 - events, and what each of them has
        return Tensor(described.type, None)
    width = dimensions[1]
    return Tensor(described.type, width if isinstance(width, int) else 1)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
