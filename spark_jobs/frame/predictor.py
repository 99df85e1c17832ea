"""Add predictions as columns: Spark's Python workers run a model on Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

from tallyweir.schemas.pipeline.events.prediction import Prediction
from tallyweir.spark_jobs.frame.model_file import Model, loaded_once

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
