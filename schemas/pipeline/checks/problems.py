"""Problems of a pipeline, which one error collects.

A problem knows its path in the pipeline (``("outputs", 1, "by", 0)``), but not its
line: the reader of a file turns paths into lines. So the rules are the same for
pipelines from YAML and from Python.
"""

from __future__ import annotations

import dataclasses
import difflib
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TypeAlias

from tallyweir.sinks.protocol.errors import ConfigurationError

Path: TypeAlias = tuple[str | int, ...]


class StandIn(str):
    """Stands in for a name that is missing or wrong, which is reported already.

    No file can contain it: only the checks of a file with problems see it.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that the user must change.

    Attributes:
        code: Stable upper-case identifier, such as ``PIPELINE_UNKNOWN_KEY``.
        at: Path in the pipeline; empty for the whole part.
        saw: What the check found there.
        why: Why it cannot stay.
        fix: What to write instead, as an instruction.
    """

    code: str
    at: Path = ()
    saw: str
    why: str
    fix: str

    def under(self, *prefix: str | int) -> Problem:
        """Return the same problem for the larger part that holds this one."""
        return dataclasses.replace(self, at=(*prefix, *self.at))


class PipelineError(ConfigurationError):
    """The error of a pipeline that cannot start, with all its problems.

    ``code`` is that of the first problem; ``problems`` has all of them.

    Attributes:
        problems: Problems in the order in which they are shown, at least one.
        places: Place of each problem: ``departures.yaml:4`` or ``Source.topic``.
    """

    def __init__(self, problems: Sequence[Problem], places: Sequence[str]) -> None:
        self.problems = tuple(problems)
        self.places = tuple(places)
        first = self.problems[0]
        located = list(zip(self.places, self.problems, strict=True))
        if len(located) == 1:
            saw, why, fix = f"{places[0]}: {first.saw}", first.why, first.fix
        else:
            lines = (
                f"\n  {place}: {one.code}: {one.saw} {one.why} Fix: {one.fix}"
                for place, one in located
            )
            saw = f"{len(located)} problems:{''.join(lines)}\n"
            why = "A pipeline starts only if every part of it is valid."
            fix = "Correct each line above."
        super().__init__(first.code, saw=saw, why=why, fix=fix)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle all problems, which the parent's method would lose."""
        return (PipelineError, (self.problems, self.places))


@dataclass(slots=True)
class Gathered:
    """Gathers the problems of all parts that a Python file builds.

    Attributes:
        folder: Folder of the file and its imports; places are their lines.
    """

    folder: FilePath
    problems: list[Problem] = dataclasses.field(default_factory=list)
    places: list[str] = dataclasses.field(default_factory=list)

    def add(self, problems: Iterable[Problem], subject: str) -> None:
        """Keep problems of a part that is being built."""
        line = self._line()
        for one in problems:
            self.problems.append(one)
            self.places.append(f"{line}{subject}{_format_path(one.at)}")

    def raise_if_any(self) -> None:
        """Raise all problems, if there are any.

        Raises:
            PipelineError: There are problems; it has all of them.
        """
        if self.problems:
            raise PipelineError(self.problems, self.places)

    def _line(self) -> str:
        for frame, line in traceback.walk_stack(None):
            file = FilePath(frame.f_code.co_filename)
            is_installed = "site-packages" in file.parts
            if file.is_relative_to(self.folder) and file.is_file() and not is_installed:
                return f"{file.name}:{line} "
        return ""


#: Takes the problems of a part that is being built, and what kind of part it is.
AddProblems: TypeAlias = Callable[[Iterable[Problem], str], None]

_gathered: ContextVar[AddProblems | None] = ContextVar("gathered", default=None)


@contextmanager
def gathering(add: AddProblems) -> Iterator[None]:
    """Let wrong parts be built, so that one error can show all problems."""
    token = _gathered.set(add)
    try:
        yield
    finally:
        _gathered.reset(token)


def raise_if_any(subject: str, problems: Iterable[Problem]) -> None:
    """Raise the problems of a part that is built in Python.

    Raises:
        PipelineError: There are problems, outside of ``gathering``; the place of each
            is a path such as ``Window.by[0]``.
    """
    found = _found_in(problems)
    add = _gathered.get()
    if found and add is not None:
        add(found, subject)
    elif found:
        raise PipelineError(found, [subject + _format_path(one.at) for one in found])


def _found_in(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Collect the problems of a part; a check that fails means a wrong type."""
    found: list[Problem] = []
    try:
        found.extend(problems)
    except (AttributeError, TypeError) as error:
        seen = f"A value has the wrong type ({error})."
        why = "docs/python.md lists the type of each value."
        # Problems found before are most likely the cause.
        found = found or [
            Problem(code="PIPELINE_VALUE", saw=seen, why=why, fix="Correct the value.")
        ]
    return tuple(found)


def suggest(wrong: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return an instruction to write what was probably meant.

    Args:
        wrong: The wrong word.
        known: The valid words.
        otherwise: Instruction if no valid word is near; by default, list all.
    """
    names = list(known)
    by_folded = {name.casefold(): name for name in names}
    nearest = difflib.get_close_matches(wrong.casefold(), by_folded, n=1)
    if nearest:
        return f"Write {by_folded[nearest[0]]}."
    return otherwise or (f"Write one of {', '.join(names)}." if names else "Remove it.")


def _format_path(path: Path) -> str:
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in path
    )


def empty_value(at: Path) -> Problem:
    """Return the problem that the value of a key is empty."""
    return Problem(
        code="PIPELINE_VALUE",
        at=at,
        saw=f"{at[-1]} is empty.",
        why="The pipeline needs a value here.",
        fix="Fill it in.",
    )
