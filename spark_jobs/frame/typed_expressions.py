"""Check a pipeline's expressions with Spark's analyser, once all types are known.

Spark silently converts a text to a number if the two are compared, or a number to a
boolean if it needs a condition. This module asks Spark's analyser before the driver
claims an epoch, and each conversion that the file does not write is an error of the
file. So are problems that only types reveal: lambdas whose results grow, and casts of
an event's text. So are failures in values that Spark computes before it sees an event,
where no code catches an exception: constants without a value, formats, time zones.

Spark returns a tree as one list of its nodes, in the order of Spark's numbering: all
nodes below a node follow it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

from tallyweir.schemas.pipeline.checks.problems import Path, Problem, raise_if_any
from tallyweir.schemas.pipeline.definition import Pipeline
from tallyweir.schemas.pipeline.expressions.expressions import (
    is_special_time,
    levels_of,
    reads_any,
    with_written_casts,
)
from tallyweir.schemas.pipeline.outputs.aggregate import AggregateFunction
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output
from tallyweir.spark_jobs.frame.stored_types import POSTGRES_TYPES

#: A type as Spark writes it in JSON, and a node of a tree likewise.
_Type: TypeAlias = Any
_Node: TypeAlias = dict[str, Any]
#: An object of the JVM.
_Java: TypeAlias = Any

#: The errors of an expression that Spark cannot plan.
SPARKS_ERRORS = (PySparkException, Py4JJavaError)

_NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal")
#: Nodes that differ between runs of a query, although Spark calls them deterministic.
_OF_THE_SESSION = frozenset(
    {"CurrentDatabase", "CurrentCatalog", "CurrentUser", "CurrentTimeZone"}
    | {"CurrentDate", "CurrentTimestamp", "CurrentTime", "Now", "LocalTimestamp"}
    | {"SparkVersion", "InputFileName", "InputFileBlockStart", "InputFileBlockLength"}
)
#: Functions that cast by themselves if they get no format.
_TIMES = frozenset({"ParseToDate", "ParseToTimestamp"})
#: Functions that make an array or a map with a lambda.
_BUILDERS = frozenset(
    {"ArrayTransform", "TransformKeys", "TransformValues", "ZipWith", "MapZipWith"}
)


@dataclass(frozen=True, slots=True)
class _Expression:
    """One expression of a pipeline, its place, and whether it is a condition."""

    at: Path
    text: str
    is_condition: bool = True


def check_computed(compute: Mapping[str, str], events: DataFrame) -> None:
    """Refuse computed columns whose types do not fit, all of them in one error.

    Args:
        compute: Computed column to its expression, in order.
        events: Any events, with the fields that the expressions may read.

    Raises:
        PipelineError: As ``check_types`` does; or Postgres has no type for the values.
    """
    raise_if_any("Pipeline", _find_miscomputed(compute, events))


def _find_miscomputed(
    compute: Mapping[str, str], events: DataFrame
) -> Iterator[Problem]:
    frame = events.sparkSession.createDataFrame([], events.schema)
    wrong: set[str] = set()
    for names in levels_of(compute):
        # What reads a wrong column cannot be judged.
        wrong.update(name for name in names if reads_any(compute[name], wrong))
        found = list(
            _find_problems(
                frame,
                [
                    _Expression(("compute", name), compute[name], is_condition=False)
                    for name in names
                    if name not in wrong
                ],
            )
        )
        yield from found
        wrong.update(str(problem.at[1]) for problem in found)
        for name in names:
            if name in wrong:
                continue
            frame = frame.withColumn(name, F.expr(compute[name]))
            kind = frame.schema[name].dataType
            if type(kind) not in POSTGRES_TYPES:
                yield _mistyped(
                    f"{compute[name]!r} is of type {kind.simpleString()}.",
                    "Postgres has no type for this Spark type.",
                    "Cast it to a type that is stored, such as "
                    f"CAST({compute[name]} AS string).",
                ).under("compute", name)


def check_types(pipeline: Pipeline, events: DataFrame) -> None:
    """Refuse expressions whose types do not fit, all of them in one error.

    Args:
        pipeline: The pipeline.
        events: Its events, with all columns that an expression may use.

    Raises:
        PipelineError: A condition is not a boolean, Spark would convert a value
            silently, or a result depends on the session or has no bound.
    """
    expressions = list(_expressions_of(pipeline))
    if not expressions:
        return
    computed = pipeline.compute
    given = [one for one in events.schema.fields if one.name not in computed]
    frame = events.sparkSession.createDataFrame([], StructType(given))
    # Spark puts a computed column that is constant into what reads it.
    for name, text in computed.items():
        frame = frame.withColumn(name, F.expr(text))
    raise_if_any("Pipeline", _find_problems(frame, expressions))


def _expressions_of(pipeline: Pipeline) -> Iterator[_Expression]:
    for rule in pipeline.validate:
        yield _Expression(("validate", rule.reason_code), rule.condition)
    for index, prediction in enumerate(pipeline.predict):
        for name, texts in prediction.inputs.items():
            for text in texts:
                at: Path = ("predict", index, "inputs", name)
                yield _Expression(at, text, is_condition=False)
    if pipeline.filter is not None:
        yield _Expression(("filter",), pipeline.filter)
    for index, output in enumerate(pipeline.outputs):
        for one in _expressions_of_output(output):
            yield replace(one, at=("outputs", index, *one.at))


def _expressions_of_output(output: Output) -> Iterator[_Expression]:
    for at, condition in output.conditions.items():
        yield _Expression(at, condition)
    for _, one, argument in output.arguments:
        counts = one.function is AggregateFunction.COUNT_IF
        place = ("aggregates", one.column)
        yield _Expression(place, argument, is_condition=counts)


def _find_problems(
    frame: DataFrame, expressions: Sequence[_Expression]
) -> Iterator[Problem]:
    jvm: _Java = frame.sparkSession._jvm  # noqa: SLF001 - Spark has no other way
    catalyst = jvm.org.apache.spark.sql.catalyst.expressions
    written = catalyst.Cast.USER_SPECIFIED_CAST()
    try:
        trees = _analyzed(frame, [one.text for one in expressions])
    except AnalysisException:
        trees = []
    sound = []
    for number, one in enumerate(expressions):
        try:
            tree = trees[number] if trees else _analyzed(frame, [one.text])[0]
        except AnalysisException as exc:
            yield _refused_by_spark(one, exc)
            continue
        found = _Tree(one.text, tree, written)
        problems = list(found.find_problems(is_condition=one.is_condition))
        yield from (problem.under(*one.at) for problem in problems)
        if not problems:
            sound.append(one)
    yield from _find_unplanned(frame, sound)


def _find_unplanned(
    frame: DataFrame, expressions: Sequence[_Expression]
) -> Iterator[Problem]:
    try:
        plan_expressions(frame, [one.text for one in expressions])
    except SPARKS_ERRORS as exc:
        if len(expressions) == 1:
            yield _refused_by_spark(expressions[0], exc)
            return
        for one in expressions:
            yield from _find_unplanned(frame, [one])


def _analyzed(frame: DataFrame, texts: Sequence[str]) -> list[_Java]:
    found = _query(frame, texts).analyzed().projectList()
    return [found.apply(number).child() for number in range(found.size())]


def plan_expressions(frame: DataFrame, texts: Sequence[str]) -> None:
    """Make Spark compute everything that precedes the first event of a batch.

    Raises:
        PySparkException: Spark cannot, and would end each batch.
        Py4JJavaError: The same; PySpark does not know all of Spark's exceptions.
    """
    plan = _query(frame, texts).optimizedPlan()
    jvm: _Java = frame.sparkSession._jvm  # noqa: SLF001 - as above
    codegen = jvm.org.apache.spark.sql.catalyst.expressions.codegen
    given = plan.children().head().output()
    codegen.GenerateUnsafeProjection.generate(plan.expressions(), given)


def _query(frame: DataFrame, texts: Sequence[str]) -> _Java:
    columns = [
        F.expr(f"({with_written_casts(text)}\n)").alias(f"e{number}")
        for number, text in enumerate(texts)
    ]
    return frame.select(*columns)._jdf.queryExecution()  # noqa: SLF001 - as above


def _refused_by_spark(
    expression: _Expression, exc: PySparkException | Py4JJavaError
) -> Problem:
    return _mistyped(
        f"Spark rejects {expression.text!r}: {_message(exc)}",
        "Spark could not run the expression.",
        "Correct the expression, or cast its parts.",
    ).under(*expression.at)


def _message(exc: PySparkException | Py4JJavaError) -> str:
    told = exc.java_exception if isinstance(exc, Py4JJavaError) else exc
    return str(told.getMessage()).partition(" SQLSTATE")[0]


class _Tree:
    """One expression, as Spark's analyser returned it."""

    def __init__(self, text: str, root: _Java, written: _Java) -> None:
        self._text = text
        self._root = root
        self._written = written
        self._nodes: list[_Node] = json.loads(root.toJSON())
        self._ends = _ends(self._nodes)

    def find_problems(self, *, is_condition: bool) -> Iterator[Problem]:
        """Find all problems of the expression."""
        kind = _type_of(self._root)
        if is_condition and kind != "boolean":
            yield _mistyped(
                f"{self._text!r} is of type {_shown(kind)}.",
                "A condition must be true or false; Spark would have to guess.",
                "Compare it with something, as in … > 0 or … IS NOT NULL.",
            )
        for number, node in enumerate(self._nodes):
            name = node["class"].rpartition(".")[2]
            if name == "Cast":
                yield from self._check_cast(self._root.apply(number))
            elif name in _TIMES:
                yield from self._check_time(self._root.apply(number).children().head())
            elif name in _BUILDERS:
                yield from self._check_elements(number)
            elif name == "ArrayAggregate":
                yield from self._check_sum(number)
            elif name == "LambdaFunction":
                yield from self._check_lambda(number)
            elif name in _OF_THE_SESSION:
                yield self._unrepeatable("depends on the session or the clock")
        if not self._root.deterministic():
            yield self._unrepeatable("does not give the same answer every time")

    def _check_cast(self, cast: _Java) -> Iterator[Problem]:
        value, before, after = cast.child(), _type_of(cast.child()), _type_of(cast)
        pairs = list(zip(_leaves(before), _leaves(after), strict=False))
        if cast.getTagValue(self._written).isEmpty():
            for pair in pairs:
                if not _converts_safely(*pair):
                    yield _mistyped(
                        f"In {self._text!r} Spark would take {value.sql()}, which is "
                        f"{_shown(before)}, for {_shown(after)}.",
                        "A value that cannot be converted would fail or become a "
                        "guess.",
                        f"Say what is meant, such as CAST({value.sql()} AS "
                        f"{_shown(after)}), or compare values of one type.",
                    )
                    break
            return
        for source, target in pairs:
            if target.startswith("decimal") and source in {"string", "variant"}:
                yield self._unbounded(
                    f"casts {value.sql()}, which is {source}, to decimal",
                    "Text such as 1e-600000000 keeps Spark busy for hours.",
                    "Use to_number or try_to_number, such as "
                    "try_to_number(x, 'S9999999990D99').",
                )
            elif source == "string" and _group(target) == "time":
                yield from self._check_time(value)

    def _check_time(self, value: _Java) -> Iterator[Problem]:
        """Refuse a time that Spark computes before it sees an event."""
        if not value.foldable() or _type_of(value) != "string":
            return
        is_literal = value.getClass().getSimpleName() == "Literal"
        if not is_literal or is_special_time(value.toString()):
            yield self._unrepeatable(
                f"takes {value.sql()} for a time, which may be the current time"
            )

    def _check_elements(self, number: int) -> Iterator[Problem]:
        """Refuse elements each of which may be as large as the event."""
        for body in self._bodies(number):
            if _grows(_type_of(self._root.apply(body))) and any(
                _grows(column["dataType"]) for column in self._columns_below(body)
            ):
                yield self._unbounded(
                    "puts a column of any length into each element of an array",
                    "The result could be as large as the square of the event.",
                    "Compute each element only from itself and from numbers.",
                )

    def _check_sum(self, number: int) -> Iterator[Problem]:
        for body in self._bodies(number):
            if _grows(_type_of(self._root.apply(body))):
                yield self._unbounded(
                    "aggregates into a value of any length",
                    "The value may double with each element.",
                    "Aggregate numbers; join text by array_join.",
                )
                return

    def _check_lambda(self, number: int) -> Iterator[Problem]:
        for column in self._columns_below(number):
            if any(_is_collection(part) for part in _parts(column["dataType"])):
                yield self._unbounded(
                    f"looks at all of {column['name']} for each element of an array",
                    "Nested passes over arrays take more time than one event may use.",
                    "Use a function of two arrays, such as arrays_overlap.",
                )

    def _bodies(self, number: int) -> Iterator[int]:
        """Yield the bodies of a function's lambdas."""
        child = number + 1
        while child < self._ends[number]:
            if self._nodes[child]["class"].endswith(".LambdaFunction"):
                yield child + 1
            child = self._ends[child]

    def _columns_below(self, number: int) -> list[_Node]:
        return [
            node
            for node in self._nodes[number : self._ends[number]]
            if node["class"].endswith(".AttributeReference")
        ]

    def _unrepeatable(self, seen: str) -> Problem:
        return Problem(
            code="PIPELINE_FUNCTION_REFUSED",
            saw=f"{self._text!r} {seen}.",
            why="A replay must give the same answer.",
            fix="Use a field of the event, or write the value itself.",
        )

    def _unbounded(self, seen: str, why: str, fix: str) -> Problem:
        return Problem(
            code="PIPELINE_EXPRESSION_UNBOUNDED",
            saw=f"{self._text!r} {seen}.",
            why=why,
            fix=fix,
        )


def _ends(nodes: Sequence[_Node]) -> list[int]:
    """Return for each node where the list of nodes below it ends."""
    ends = [0] * len(nodes)
    for number in reversed(range(len(nodes))):
        end = number + 1
        for _ in range(nodes[number]["num-children"]):
            end = ends[end]
        ends[number] = end
    return ends


def _type_of(expression: _Java) -> _Type:
    return json.loads(expression.dataType().json())


def _leaves(kind: _Type) -> Iterator[str]:
    """Yield the simple types that a type is made of, in order."""
    return (part for part in _parts(kind) if isinstance(part, str))


def _parts(kind: _Type) -> Iterator[_Type]:
    """Yield a type and all types within it."""
    yield kind if isinstance(kind, str) else {"type": kind["type"]}
    if isinstance(kind, str):
        return
    for field in kind.get("fields", ()):
        yield from _parts(field["type"])
    for key in ("elementType", "keyType", "valueType"):
        if key in kind:
            yield from _parts(kind[key])


def _is_collection(kind: _Type) -> bool:
    return not isinstance(kind, str) and kind["type"] in {"array", "map"}


def _grows(kind: _Type) -> bool:
    """Tell whether a value of the type may be of any length."""
    return any(
        _is_collection(part) or part in ("string", "binary", "variant")
        for part in _parts(kind)
    )


def _group(kind: str) -> str:
    if kind.startswith(_NUMBERS):
        return "number"
    if kind.startswith(("date", "timestamp")):
        return "time"
    return kind.partition(" ")[0].partition("(")[0]


def _converts_safely(before: str, after: str) -> bool:
    """Tell whether every value means the same in the other type, as in Postgres."""
    if "void" in (before, after) or (before, after) == ("string", "binary"):
        return True
    return _group(before) == _group(after)


def _shown(kind: _Type) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def _mistyped(saw: str, why: str, fix: str) -> Problem:
    return Problem(code="PIPELINE_EXPRESSION_TYPE", saw=saw, why=why, fix=fix)
