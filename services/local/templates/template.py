"""Templates: pipeline files that work as they are, with parameters to set.

Next to ``NAME.yaml``, or a file in Python, is ``NAME.template.yaml``, which says what
the pipeline is for and which places of the file are parameters. The value in a place is
the default, so a template is tested exactly as users read it. Setting a parameter
replaces only that text; comments stay.
"""

from __future__ import annotations

import ast
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

from tallyweir.services.local.datasets.flights import read_file
from tallyweir.services.local.embedded.state_directory import ROOT
from tallyweir.sinks.protocol.errors import ConfigurationError

TEMPLATES = ROOT / "spark_jobs" / "pipelines"
_ENDING = ".template.yaml"


class ParameterType(StrEnum):
    """The type of a parameter's value."""

    TOPIC = "topic"
    TABLE = "table"
    NAME = "name"
    DURATION = "duration"
    NUMBER = "number"


#: Each match of these is one plain YAML value.
_SHAPES = {
    ParameterType.TOPIC: (r"[A-Za-z0-9._-]{1,249}", "letters, digits, . _ and -"),
    ParameterType.TABLE: (
        r"([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,62}",
        "small letters, digits and _, after a schema and a dot if need be",
    ),
    ParameterType.NAME: (r"[a-z][a-z0-9-]{0,62}", "small letters, digits and -"),
    ParameterType.DURATION: (
        r"[0-9]{1,9} ?(ms|milliseconds?|s|seconds?|minutes?|hours?|days?|weeks?)",
        'a number and a unit, such as "30 seconds"',
    ),
    ParameterType.NUMBER: (r"[0-9]{1,9}", "a whole number"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One value that a user may set.

    Attributes:
        name: Name for ``--set``.
        type: Type of its values.
        help: Its purpose in a few words.
        places: Its places in the pipeline file, each a path of keys.
        default: The value in the file.
    """

    name: str
    type: ParameterType
    help: str
    places: tuple[str, ...]
    default: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A ready pipeline.

    Attributes:
        name: Name of the template.
        title: Its purpose in one line.
        file: The pipeline file.
        parameters: Parameters that a user may set.
        companions: Further files that belong next to the pipeline file.
        tables: A SQL file that makes its lookup tables, if any.
        rows: Files of the flights dataset with the rows of these tables, by table.
        dataset: Name of the made-up events that fit it.
    """

    name: str
    title: str
    file: Path
    parameters: tuple[Parameter, ...]
    companions: tuple[Path, ...]
    tables: Path | None
    rows: Mapping[str, str]
    dataset: str

    def render(self, values: Mapping[str, str]) -> str:
        """Return the pipeline file with parameters set.

        Raises:
            ConfigurationError: ``PARAMETER_UNKNOWN`` or ``PARAMETER_VALUE``.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name, value in values.items():
            if name not in known:
                raise ConfigurationError(
                    "PARAMETER_UNKNOWN",
                    saw=f"The template {self.name} has no parameter {name!r}.",
                    why="The template would ignore it.",
                    fix=f"Set one of {', '.join(known)}.",
                )
            _check_value(known[name], value)
        places = open_places(self.file)
        text = places.text
        replaced = [
            (places.find(place), places.written(value))
            for name, value in values.items()
            for place in known[name].places
        ]
        # Replace from the end, so that earlier places stay valid.
        for found, value in sorted(replaced, key=lambda one: -one[0].start):
            text = text[: found.start] + value + text[found.end :]
        return text

    def files(self, values: Mapping[str, str]) -> dict[str, bytes]:
        """Return all its files by name, the pipeline file first.

        Raises:
            ConfigurationError: As ``render``, or ``read_file``.
        """
        beside = [*self.companions]
        if self.tables is not None:
            beside.append(self.tables)
        return {
            self.file.name: self.render(values).encode(),
            **{path.name: path.read_bytes() for path in beside},
            **{name: read_file(name) for name in self.rows.values()},
        }


def template_names() -> list[str]:
    """Name every template."""
    return sorted(p.name.removesuffix(_ENDING) for p in TEMPLATES.glob(f"*{_ENDING}"))


def read_template(name: str) -> Template:
    """Read a template by its name.

    Raises:
        ConfigurationError: ``TEMPLATE_UNKNOWN``.
    """
    known = template_names()
    if name not in known:
        raise ConfigurationError(
            "TEMPLATE_UNKNOWN",
            saw=f"There is no template {name!r}.",
            why="Templates are pipelines that come with Tallyweir.",
            fix=f"Choose one of {', '.join(known)}." if known else "None is installed.",
        )
    described = yaml.safe_load((TEMPLATES / f"{name}{_ENDING}").read_text("utf-8"))
    file = TEMPLATES / described.get("file", f"{name}.yaml")
    places = open_places(file)
    tables = described.get("tables")
    return Template(
        name=name,
        title=described["title"],
        file=file,
        parameters=tuple(
            _read_parameter(key, value, places)
            for key, value in described.get("parameters", {}).items()
        ),
        companions=tuple(TEMPLATES / file for file in described.get("companions", ())),
        tables=None if tables is None else TEMPLATES / tables,
        rows=described.get("rows", {}),
        dataset=described["dataset"],
    )


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """Read ``NAME=VALUE`` of a command line.

    Raises:
        ConfigurationError: ``PARAMETER_VALUE``: a setting has another form.
    """
    values: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigurationError(
                "PARAMETER_VALUE",
                saw=f"--set is {setting!r}.",
                why="The option takes a parameter and its value.",
                fix="Write it in the form topic=page-views.",
            )
        values[name.strip()] = value.strip()
    return values


def _read_parameter(name: str, described: dict[str, Any], file: Places) -> Parameter:
    places = tuple(described["at"])
    defaults = {file.find(place).value for place in places}
    assert len(defaults) == 1, f"{name} stands for {sorted(defaults)}"
    return Parameter(
        name=name,
        type=ParameterType(described["type"]),
        help=described["help"],
        places=places,
        default=defaults.pop(),
    )


def _check_value(parameter: Parameter, value: str) -> None:
    shape, words = _SHAPES[parameter.type]
    if not re.fullmatch(shape, value, re.ASCII):
        raise ConfigurationError(
            "PARAMETER_VALUE",
            saw=f"{parameter.name} is {value!r}.",
            why=f"It is a {parameter.type}: {words}.",
            fix=f"Its default is {parameter.default!r}.",
        )


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


def write_files(
    directory: Path, files: Mapping[str, bytes], *, replace: bool
) -> list[Path]:
    """Write all files; write nothing if a file exists that must not be replaced.

    Args:
        directory: Directory to write to; made when missing.
        files: Content by name, the pipeline file first.
        replace: Overwrite existing files of these names.

    Returns:
        The paths of the files, in the same order.

    Raises:
        ConfigurationError: ``FILE_EXISTS``, or ``FILE_UNWRITABLE``.
    """
    paths = [directory / name for name in files]
    there = [path for path in paths if path.exists()]
    if there and not replace:
        raise ConfigurationError(
            "FILE_EXISTS",
            saw=f"{', '.join(map(str, there))} already exists.",
            why="The file may hold your changes.",
            fix="Choose another --directory, or move it away.",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, content in zip(paths, files.values(), strict=True):
            path.write_bytes(content)
    except OSError as error:
        raise ConfigurationError(
            "FILE_UNWRITABLE",
            saw=f"{directory} cannot be written ({error.strerror}).",
            why="The template's files go there.",
            fix="Choose another --directory.",
        ) from error
    return paths
