"""Models of one node, for tests to predict by."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper


def write_doubling(path: Path, kind: int = TensorProto.DOUBLE) -> None:
    """Write a model whose output is its input twice."""
    value = helper.make_tensor_value_info
    _save(
        path,
        helper.make_graph(
            [helper.make_node("Add", ["x", "x"], ["y"])],
            "double",
            [value("x", kind, [None])],
            [value("y", kind, [None])],
        ),
    )


def write_choosing(path: Path) -> None:
    """Write a model that looks its input up in three numbers, and refuses the rest."""
    value = helper.make_tensor_value_info
    numbers = helper.make_tensor("numbers", TensorProto.DOUBLE, [3], [10.0, 20.0, 30.0])
    _save(
        path,
        helper.make_graph(
            [helper.make_node("Gather", ["numbers", "x"], ["y"])],
            "choose",
            [value("x", TensorProto.INT64, [None])],
            [value("y", TensorProto.DOUBLE, [None])],
            initializer=[numbers],
        ),
    )


def _save(path: Path, graph: onnx.GraphProto) -> None:
    # Of an age that every runtime since can read.
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 9
    onnx.save(made, path)
