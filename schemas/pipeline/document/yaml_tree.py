"""Reads YAML that strangers may have written, and keeps the line of everything.

A document is a tree of plain mappings, lists and scalars. The reader refuses anchors,
aliases and tags (341 bytes of aliases can unfold to gigabytes), and depth and size
beyond any pipeline's need. Keys keep the spelling of the file, because YAML 1.1 would
read the key ``on`` as true.

``Report`` gathers the problems of a file, so that one error shows all of them by
line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import TypeAlias, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from tallyweir.schemas.pipeline.checks.problems import (
    Path,
    PipelineError,
    Problem,
    gathering,
)

#: Code of a key that a mapping has twice.
DUPLICATE_KEY = "PIPELINE_DUPLICATE_KEY"


@dataclass(slots=True, kw_only=True)
class Report:
    """The problems of one file, and their lines.

    Attributes:
        file: The file's name as the user gave it.
        lines: Line of each path, from 1.
    """

    file: str
    lines: dict[Path, int] = field(default_factory=dict)
    _found: dict[tuple[Problem, int], None] = field(default_factory=dict)
    _wrong: set[Path] = field(default_factory=set)

    def add(self, problem: Problem, line: int | None = None) -> None:
        """Keep a problem once, on a given line or on the line of its path."""
        self._found[problem, line or self._line_of(problem.at)] = None
        # A key that is there twice says nothing of the value that counts.
        if problem.code != DUPLICATE_KEY:
            self._wrong.add(problem.at)

    def add_found(
        self, problems: Iterable[Problem], in_file: Callable[[Path], Path]
    ) -> None:
        """Keep the problems of values that nothing has been reported of before.

        Args:
            problems: Problems of a part.
            in_file: Turns a path in the part into the path in the file.
        """
        placed = [replace(problem, at=in_file(problem.at)) for problem in problems]
        for problem in [one for one in placed if one.at not in self._wrong]:
            self.add(problem)

    def building(self, in_file: Callable[[Path], Path]) -> AbstractContextManager[None]:
        """Let a part be built even if it is wrong, and keep its problems.

        So checks of other parts that refer to it can go on. It never runs, because the
        file has a problem.

        Args:
            in_file: As in ``add_found``.
        """
        return gathering(lambda problems, _: self.add_found(problems, in_file))

    def raise_if_any(self) -> None:
        """Raise all problems, ordered by line, if there are any.

        Raises:
            PipelineError: There are problems.
        """
        if self._found:
            # The sort is stable: problems of one line stay in the order of finding.
            found = sorted(self._found, key=lambda pair: pair[1])
            raise PipelineError(
                [problem for problem, _ in found],
                [f"{self.file}:{line}" for _, line in found],
            )

    def _line_of(self, path: Path) -> int:
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


FILE_BYTES_MAX = 1_000_000
DEPTH_MAX = 16

_TAG = "tag:yaml.org,2002:"


class YamlMap(dict[str, "YamlValue"]):
    """A mapping; ``at`` is its path in the file."""

    at: Path


class YamlList(list["YamlValue"]):
    """A list; ``at`` is its path in the file."""

    at: Path


@dataclass(frozen=True, slots=True)
class YamlScalar:
    """A scalar as it is written.

    Attributes:
        at: Its path in the file.
        kind: What YAML 1.1 takes it for: ``str``, ``int``, ``bool`` and so on.
        text: Its characters, without quotation marks.
    """

    at: Path
    kind: str
    text: str


YamlValue: TypeAlias = YamlMap | YamlList | YamlScalar


class _PlainLoader(yaml.SafeLoader):
    """A loader of plain trees; all other YAML is a syntax error."""

    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event: yaml.NodeEvent = self.peek_event()  # type: ignore[no-untyped-call]
        refused = None
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            refused = "anchors and aliases are not allowed; write the value out"
        elif getattr(event, "tag", None) is not None:
            refused = "tags are not allowed; quote the value if it is text"
        elif self.depth >= DEPTH_MAX:
            refused = f"it is nested deeper than {DEPTH_MAX} levels"
        if refused is not None:
            raise yaml.MarkedYAMLError(
                problem=refused, problem_mark=cast("yaml.Mark", event.start_mark)
            )
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_tree(path: FilePath) -> tuple[YamlMap, Report]:
    """Read a file's outermost mapping, and the lines and double keys in it.

    Raises:
        PipelineError: The file is missing, too large, not YAML, or more than a
            plain tree.
    """
    report = Report(file=str(path))
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as exc:
        problem = Problem(
            code="PIPELINE_FILE_MISSING",
            saw=f"The file cannot be read ({exc.strerror}).",
            why="The pipeline cannot run without its file.",
            fix="Correct the path or its permissions.",
        )
        raise PipelineError([problem], [str(path)]) from exc
    if len(content) > FILE_BYTES_MAX:
        raise _syntax_error(report, f"it is larger than {FILE_BYTES_MAX:,} bytes", 1)
    try:
        node = _compose(content.decode("utf-8-sig"))
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise _syntax_error(report, "it is not UTF-8 text", line) from exc
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        line = mark.line + 1 if mark else 1
        seen = ": ".join(part for part in (exc.context, exc.problem) if part)
        raise _syntax_error(report, seen, line) from exc
    except yaml.YAMLError as exc:
        seen = str(exc).splitlines()[0]
        raise _syntax_error(report, seen, 1) from exc
    tree = None if node is None else _read(node, (), report)
    if not isinstance(tree, YamlMap):
        raise _syntax_error(report, "it is not a mapping of keys to values", 1)
    return tree, report


def _compose(text: str) -> Node | None:
    loader = _PlainLoader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _read(node: Node, at: Path, report: Report) -> YamlValue:
    if isinstance(node, ScalarNode):
        return YamlScalar(at, str(node.tag).removeprefix(_TAG), node.value)
    if isinstance(node, MappingNode):
        return _read_map(node, at, report)
    items = YamlList()
    items.at = at
    for index, item in enumerate(node.value):
        report.lines[(*at, index)] = item.start_mark.line + 1
        items.append(_read(item, (*at, index), report))
    return items


def _read_map(node: MappingNode, at: Path, report: Report) -> YamlMap:
    values = YamlMap()
    values.at = at
    for key, value in node.value:
        name = key.value if isinstance(key, ScalarNode) else "a complex key"
        line = key.start_mark.line + 1
        inside = (*at, name)
        if name in values:
            problem = Problem(
                code=DUPLICATE_KEY,
                at=inside,
                saw=f"The key {name!r} is also on line {report.lines[inside]}.",
                why="Only one of the two values can apply.",
                fix="Remove one.",
            )
            report.add(problem, line)
            continue
        report.lines[inside] = line
        values[name] = _read(value, inside, report)
    return values


def _syntax_error(report: Report, seen: str, line: int) -> PipelineError:
    problem = Problem(
        code="PIPELINE_SYNTAX",
        saw=f"The file cannot be read as YAML: {seen}.",
        why="The rest of the file cannot be checked until this is corrected.",
        fix="Correct it at this line or just above.",
    )
    return PipelineError([problem], [f"{report.file}:{line}"])
