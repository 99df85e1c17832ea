"""Columns that a machine-learning model computes for each event."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import ClassVar

from tallyweir.schemas.pipeline.checks.names import check_distinct, check_output_column
from tallyweir.schemas.pipeline.checks.problems import (
    Problem,
    empty_value,
    raise_if_any,
)
from tallyweir.schemas.pipeline.document.file_keys import Keys, Lists, Pairs, Text
from tallyweir.schemas.pipeline.expressions.expressions import inspect_expression

_SUFFIX = ".onnx"
_OUTPUT = re.compile(r"(?P<name>[^\[\]]+)(\[(?P<index>[0-9]{1,6})\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOutput:
    """One number or text per event from the output of a model.

    Attributes:
        name: Name of the model's output.
        index: Index of the element, if the output has several for each event.
    """

    name: str
    index: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Columns computed by a model in ONNX, which is data: loading it runs no code.

    Attributes:
        model: File of the model, relative to the pipeline file.
        inputs: Input of the model to Spark SQL over one event: one expression for an
            input of one value, several for an input that takes a row of features.
        columns: New column to output of the model; ``probabilities[1]`` for one element
            of several.
        version: New column with the version of the model: the beginning of the SHA-256
            of its file. Its default name is the file's name and ``_version``.
    """

    model: str
    inputs: Mapping[str, tuple[str, ...]]
    columns: Mapping[str, str]
    version: str = ""

    def __post_init__(self) -> None:
        if not self.version:
            stem = re.sub(r"\W", "_", PurePath(self.model).stem).lower()
            object.__setattr__(self, "version", f"{stem}_version")
        raise_if_any("Prediction", self._find_problems())

    @property
    def new_columns(self) -> tuple[str, ...]:
        """Columns that it adds to the event, in order."""
        return (*self.columns, self.version)

    def output_of(self, column: str) -> ModelOutput:
        """Return the model's output that fills a column."""
        found = _OUTPUT.fullmatch(self.columns[column].strip())
        assert found is not None, "checked when it was built"
        index = found["index"]
        return ModelOutput(
            name=found["name"], index=None if index is None else int(index)
        )

    def _find_problems(self) -> Iterator[Problem]:
        if not self.model.endswith(_SUFFIX):
            yield Problem(
                code="PIPELINE_VALUE",
                at=("model",),
                saw=f"The model is {self.model!r}.",
                why="Only ONNX models are supported: other formats execute code when "
                "they load.",
                fix="Export it, from scikit-learn with skl2onnx, to a file *.onnx.",
            )
        for name, given in (("inputs", self.inputs), ("columns", self.columns)):
            if not given:
                yield empty_value((name,))
        for name, expressions in self.inputs.items():
            if not expressions:
                yield empty_value(("inputs", name))
            for expression in expressions:
                for problem in inspect_expression(expression).problems:
                    yield problem.under("inputs", name)
        for column, output in self.columns.items():
            yield from check_output_column(column, ("columns", column))
            if not _OUTPUT.fullmatch(output.strip()):
                yield Problem(
                    code="PIPELINE_VALUE",
                    at=("columns", column),
                    saw=f"The model's output is {output!r}.",
                    why=(
                        "An output is a name, optionally with the index of one element."
                    ),
                    fix="Write label, or probabilities[1].",
                )
        yield from check_output_column(self.version, ("version",))
        yield from check_distinct(list(self.new_columns), "columns", ("columns",))


class PredictionKeys(Keys[Prediction]):
    """The keys of a model in ``predict``."""

    part = Prediction
    stand_ins: ClassVar[Mapping[str, object]] = {"model": f"unnamed{_SUFFIX}"}

    model: Text
    inputs: Lists
    columns: Pairs
    version: Text = ""
