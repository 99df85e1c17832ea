"""Finds the places of values in a pipeline file, and writes values there."""

from __future__ import annotations

import ast
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlace:
    """The place of a value in a text: from ``start`` up to ``end``, in characters."""

    start: int
    end: int
    value: str


class Places(ABC):
    """The places of one file.

    Attributes:
        text: Text of the file.
    """

    text: str

    @abstractmethod
    def find(self, place: str) -> FoundPlace:
        """Find a place by its name; it must be there."""

    @abstractmethod
    def written(self, value: str) -> str:
        """Return a value in the syntax of the file."""


class YamlPlaces(Places):
    """Places are paths of keys and indices: ``outputs.1.window.fixed``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._document = yaml.compose(text, Loader=yaml.SafeLoader)

    def find(self, place: str) -> FoundPlace:
        node = self._document
        for key in place.split("."):
            if isinstance(node, yaml.SequenceNode):
                node = node.value[int(key)]
            else:
                assert isinstance(node, yaml.MappingNode), place
                found = [value for name, value in node.value if name.value == key]
                assert len(found) == 1, f"{place} is not in the file"
                (node,) = found
        assert isinstance(node, yaml.ScalarNode), place
        return FoundPlace(
            start=node.start_mark.index, end=node.end_mark.index, value=str(node.value)
        )

    def written(self, value: str) -> str:
        # Values of parameters are plain YAML as they are.
        return value


class PythonPlaces(Places):
    """Places are constants of the module: ``GAP_SECONDS``."""

    def __init__(self, text: str) -> None:
        self.text = text
        lines = text.splitlines(keepends=True)
        starts = [0, *accumulate(len(line) for line in lines)]
        self._found: dict[str, FoundPlace] = {}
        for statement in ast.parse(text).body:
            if not isinstance(statement, ast.Assign):
                continue
            target, value = statement.targets[0], statement.value
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                assert value.end_lineno is not None
                assert value.end_col_offset is not None
                # Columns count bytes, which is fine: constants that are parameters are
                # ASCII.
                self._found[target.id] = FoundPlace(
                    start=starts[value.lineno - 1] + value.col_offset,
                    end=starts[value.end_lineno - 1] + value.end_col_offset,
                    value=str(value.value),
                )

    def find(self, place: str) -> FoundPlace:
        return self._found[place]

    def written(self, value: str) -> str:
        return value if value.isdecimal() else json.dumps(value)


def open_places(file: Path) -> Places:
    """Read the places of a pipeline file."""
    text = file.read_text("utf-8")
    return PythonPlaces(text) if file.suffix == ".py" else YamlPlaces(text)
