"""Reads YAML that strangers may have written, and keeps the line of everything.

A document is a tree of plain mappings, lists and scalars. The reader refuses anchors,
aliases and tags (341 bytes of aliases can unfold to gigabytes), and depth and size
beyond any pipeline's need. Keys keep the spelling of the file, because YAML 1.1 would
read the key ``on`` as true.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path as FilePath
from typing import TypeVar, cast

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from schemas.pipeline.checks.problems import Path, PipelineError, Problem, suggest
from schemas.pipeline.document.problem_report import Report
from schemas.pipeline.events.enrichment import Scalar
from sinks.protocol.durations import EXAMPLES, parse_duration

FILE_BYTES_MAX = 1_000_000
DEPTH_MAX = 16

_TAG = "tag:yaml.org,2002:"
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "timestamp": "a date",
    "null": "empty",
    "map": "a mapping",
    "seq": "a list",
    "str": "text",
}
_TRUE = {"true", "yes", "on"}

T = TypeVar("T")


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


class Section:
    """One mapping of the file, read key by key.

    A getter that finds a wrong value reports it and returns the default, or None, so
    that reading goes on and finds the other problems.
    """

    def __init__(self, node: MappingNode, at: Path, report: Report) -> None:
        self.at = at
        self.report = report
        self._values: dict[str, Node] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, ScalarNode) else "a complex key"
            line = key.start_mark.line + 1
            if name in self._values:
                first = report.lines[(*at, name)]
                self.report.add(
                    Problem(
                        code="PIPELINE_DUPLICATE_KEY",
                        at=(*at, name),
                        saw=f"The key {name!r} is also on line {first}.",
                        why="Only one of them could count.",
                        fix="Remove one.",
                    ),
                    line,
                )
                continue
            self._values[name] = value
            report.lines[(*at, name)] = line

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def allow(self, *known: str) -> None:
        """Report every key but these."""
        for key in self:
            if key not in known:
                self.reject(
                    key,
                    f"There is a key {key!r}.",
                    "Nothing would read it, so it is probably misspelt.",
                    suggest(key, known),
                    code="PIPELINE_UNKNOWN_KEY",
                )

    def require(self, *keys: str) -> None:
        """Report each of these that is absent."""
        for key in keys:
            if key not in self:
                self.reject(
                    key,
                    f"The key {key!r} is missing.",
                    "It has no default.",
                    f"Add it to {self.at[-1] if self.at else 'the file'}.",
                    code="PIPELINE_MISSING_KEY",
                )

    def text(self, key: str) -> str | None:
        """Read a string; None if absent or something else."""
        node = self._values.get(key)
        return None if node is None else self._text(node, (*self.at, key))

    def duration(self, key: str, default: T) -> timedelta | T:
        """Read a duration such as ``2 hours``."""
        text = self.text(key)
        if text is None:
            return default
        try:
            return parse_duration(text)
        except ValueError as exc:
            self.reject(
                key,
                f"{key} is {text!r}: {exc}.",
                "A duration is a whole number and a unit.",
                f"Write a duration such as {EXAMPLES}.",
                code="PIPELINE_DURATION",
            )
            return default

    def whole_number(self, key: str, *, default: int) -> int:
        """Read a number of decimal digits."""
        node = self._values.get(key)
        if node is None:
            return default
        if _kind(node) != "int" or not str(node.value).isdecimal():
            self._mistyped(node, (*self.at, key), "a whole number", "Write digits.")
            return default
        return int(node.value)

    def share(self, key: str, *, default: float) -> float:
        """Read a number such as ``0.001``."""
        node = self._values.get(key)
        if node is None:
            return default
        # YAML 1.1 takes 1e-3 for text.
        if _kind(node) in {"float", "int", "str"}:
            try:
                return float(node.value)
            except ValueError:
                pass
        self._mistyped(node, (*self.at, key), "a number", "Write 0.001.")
        return default

    def boolean(self, key: str, *, default: bool) -> bool:
        """Read true or false."""
        node = self._values.get(key)
        if node is None:
            return default
        if _kind(node) != "bool":
            self._mistyped(node, (*self.at, key), "true or false", "Write true.")
            return default
        return str(node.value).lower() in _TRUE

    def is_off(self, key: str) -> bool:
        """Return whether the value is ``off``, which YAML 1.1 reads as false."""
        node = self._values.get(key)
        if not isinstance(node, ScalarNode):
            return False
        word = node.value.lower()
        return word == "off" or (_kind(node) == "bool" and word not in _TRUE)

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Read a list of strings; None if absent or something else."""
        nodes = self._items(key)
        if nodes is None:
            return None
        values = [self._text(node, at) for at, node in nodes]
        return tuple(value for value in values if value is not None)

    def one_or_more(self, key: str) -> tuple[str, ...] | None:
        """Read a string or a list of strings."""
        if isinstance(self._values.get(key), SequenceNode):
            return self.texts(key)
        text = self.text(key)
        return None if text is None else (text,)

    def is_mapping(self, key: str) -> bool:
        """Return whether the value is a mapping, if it may be something else."""
        return isinstance(self._values.get(key), MappingNode)

    def section(self, key: str) -> Section | None:
        """Read a mapping; None if absent or something else."""
        node = self._values.get(key)
        return None if node is None else self._section(node, (*self.at, key))

    def sections(self, key: str) -> list[Section | None]:
        """Read a list of mappings, with None in place of anything else."""
        if key not in self:
            return []
        nodes = self._items(key)
        if nodes is None:
            return [None]
        return [self._section(node, at) for at, node in nodes]

    def text_pairs(self, key: str) -> dict[str, str] | None:
        """Read a mapping of text to text; None if absent or something else."""
        section = self.section(key)
        if section is None:
            return None
        pairs = {name: section.text(name) for name in section}
        return {name: value for name, value in pairs.items() if value is not None}

    def scalars(self) -> dict[str, Scalar]:
        """Read all values, each of any simple type."""
        values: dict[str, Scalar] = {}
        for key, node in self._values.items():
            try:
                values[key] = _construct(node)
            except ValueError:
                wanted = "text, a finite number, true, false or null"
                self._mistyped(node, (*self.at, key), wanted, f"Write {wanted}.")
        return values

    def reject(
        self, key: str, saw: str, why: str, fix: str, code: str = "PIPELINE_VALUE"
    ) -> None:
        """Report a problem with the value of a key."""
        at = (*self.at, key)
        self.report.add(Problem(code=code, at=at, saw=saw, why=why, fix=fix))

    def _items(self, key: str) -> list[tuple[Path, Node]] | None:
        node = self._values.get(key)
        if node is None:
            return None
        at = (*self.at, key)
        if not isinstance(node, SequenceNode):
            self._mistyped(node, at, "a list", "Write [a, b], or a line - a for each.")
            return None
        items: list[tuple[Path, Node]] = []
        for index, item in enumerate(node.value):
            path = (*at, index)
            self.report.lines[path] = item.start_mark.line + 1
            items.append((path, item))
        return items

    def _section(self, node: Node, at: Path) -> Section | None:
        if isinstance(node, MappingNode):
            return Section(node, at, self.report)
        self._mistyped(node, at, "a mapping", "Write keys and values, as key: value.")
        return None

    def _text(self, node: Node, at: Path) -> str | None:
        if _kind(node) == "str":
            return str(node.value)
        written = node.value if isinstance(node, ScalarNode) else ""
        fix = f'Quote it: "{written}".' if written else "Write text."
        self._mistyped(node, at, "text", fix)
        return None

    def _mistyped(self, node: Node, at: Path, wanted: str, fix: str) -> None:
        kind = _kind(node)
        found = _KINDS.get(kind, kind)
        if isinstance(node, ScalarNode) and kind not in {"str", "null"}:
            saw = f"YAML reads the unquoted {node.value} as {found}."
        elif isinstance(node, ScalarNode) and kind == "str":
            # Do not show the text: in place of a mapping, it may be a secret.
            saw = f"{at[-1]} is text."
        else:
            saw = f"{at[-1]} is {found}."
        self.report.add(
            Problem(
                code="PIPELINE_VALUE",
                at=at,
                saw=saw,
                why=f"It must be {wanted}.",
                fix=fix,
            )
        )


def open_document(path: FilePath) -> Section:
    """Read a file's outermost mapping.

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
            why="There is no pipeline to run.",
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
    if not isinstance(node, MappingNode):
        raise _syntax_error(report, "it is not a mapping of keys to values", 1)
    return Section(node, (), report)


def _compose(text: str) -> Node | None:
    loader = _PlainLoader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _construct(node: Node) -> Scalar:
    """Construct the value of a scalar; raise ValueError for values that JSON lacks."""
    if _kind(node) not in {"str", "int", "float", "bool", "null"}:
        raise ValueError
    value: Scalar = SafeConstructor().construct_object(node)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    return value


def _kind(node: Node) -> str:
    return str(node.tag).removeprefix(_TAG)


def _syntax_error(report: Report, seen: str, line: int) -> PipelineError:
    problem = Problem(
        code="PIPELINE_SYNTAX",
        saw=f"The file cannot be read as YAML: {seen}.",
        why="Nothing in it can be trusted until it can.",
        fix="Correct it at this line or just above.",
    )
    return PipelineError([problem], [f"{report.file}:{line}"])
