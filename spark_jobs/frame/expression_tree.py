"""Access Spark's tree of an expression, which lives in the JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from pyspark import SparkContext
from pyspark.sql import Column

#: One node, with the tree below it.
Node: TypeAlias = Any


def kind_of(node: Node) -> str:
    """Return Spark's name for nodes of this kind."""
    return str(node.getClass().getSimpleName())


def type_of(node: Node) -> str:
    """Return the SQL type of an analysed node's values."""
    return str(node.dataType().catalogString())


def children_of(node: Node) -> list[Node]:
    """Return a node's parts."""
    children = node.children()
    return [children.apply(number) for number in range(children.size())]


def with_children(node: Node, children: Sequence[Node]) -> Node:
    """Return a node with other parts."""
    python_utils = the_jvm().org.apache.spark.api.python.PythonUtils
    return node.withNewChildren(python_utils.toSeq(list(children)))


def as_column(node: Node) -> Column:
    """Return a node for use with PySpark's functions."""
    return Column(_bridge().column(node))


def as_node(column: Column) -> Node:
    """Return a column of PySpark's functions as a node."""
    return _bridge().expression(column._jc)  # noqa: SLF001 - no public way


def catalyst() -> Any:  # noqa: ANN401 - of the JVM
    """Return the package of Spark's expressions."""
    return the_jvm().org.apache.spark.sql.catalyst


def the_jvm() -> Any:  # noqa: ANN401 - of the JVM
    """Return the JVM of the active session."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - no public way
    assert context is not None, "the session runs"
    return context._jvm  # noqa: SLF001 - no public way


def _bridge() -> Any:  # noqa: ANN401 - of the JVM
    return the_jvm().org.apache.spark.sql.classic.ExpressionUtils
