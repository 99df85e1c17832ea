"""What is wrong with a pipeline: several problems, one error.

A problem knows its path within the pipeline (``("outputs", 1, "by", 0)``), not where
that was written: the reader of a file turns paths into lines. So the rules are the
same for pipelines from YAML and from Python.
"""

from __future__ import annotations

import dataclasses
import difflib
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TypeAlias

from sinks.protocol.errors import ConfigurationError

Path: TypeAlias = tuple[str | int, ...]


class StandIn(str):
    """A name in place of one that is missing or wrong, which is reported already.

    No file can hold one: only the checks of a file that has a problem see it.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that someone must change.

    Attributes:
        code: Stable upper-case identifier, such as ``PIPELINE_UNKNOWN_KEY``.
        at: Where in the pipeline; empty for the whole of the part looked at.
        saw: What was found there.
        why: Why it cannot stay.
        fix: What to write instead, as an instruction.
    """

    code: str
    at: Path = ()
    saw: str
    why: str
    fix: str

    def under(self, *prefix: str | int) -> Problem:
        """Put the same problem into the larger part that holds this one."""
        return dataclasses.replace(self, at=(*prefix, *self.at))


class PipelineError(ConfigurationError):
    """A pipeline that may not start, with every problem that was found.

    ``code`` is the first problem's; ``problems`` has the others.

    Attributes:
        problems: At least one, in the order in which they are shown.
        places: Where each of them is: ``departures.yaml:4`` or ``Source.topic``.
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
            why = "A pipeline starts only when all of it is understood."
            fix = "Correct each line above."
        super().__init__(first.code, saw=saw, why=why, fix=fix)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle: the parent's way would lose the single problems."""
        return (PipelineError, (self.problems, self.places))


@dataclass(slots=True)
class Gathered:
    """The problems of all parts that a Python file builds.

    Attributes:
        folder: Of the file and of what it imports; places are told by their lines.
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
        """Refuse the file if there is a problem.

        Raises:
            PipelineError: There is; it has all of them.
        """
        if self.problems:
            raise PipelineError(self.problems, self.places)

    def _line(self) -> str:
        for frame, line in traceback.walk_stack(None):
            file = FilePath(frame.f_code.co_filename)
            if file.is_relative_to(self.folder) and file.is_file():
                return f"{file.name}:{line} "
        return ""


_gathered: ContextVar[Gathered | None] = ContextVar("gathered", default=None)


@contextmanager
def gathering(folder: FilePath) -> Iterator[Gathered]:
    """Let parts that are wrong be built, so that one error can tell of all of them.

    Args:
        folder: As in ``Gathered``.
    """
    gathered = Gathered(folder)
    token = _gathered.set(gathered)
    try:
        yield gathered
    finally:
        _gathered.reset(token)


def raise_if_any(subject: str, problems: Iterable[Problem]) -> None:
    """Refuse a part built in Python.

    Raises:
        PipelineError: There is a problem, and nobody gathers them; its place is a path
            such as ``WindowOutput.by[0]``.
    """
    found = _found_in(problems)
    gathered = _gathered.get()
    if found and gathered is not None:
        gathered.add(found, subject)
    elif found:
        raise PipelineError(found, [subject + _format_path(one.at) for one in found])


def _found_in(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Collect what a part finds; what it cannot even look at is of a wrong type."""
    found: list[Problem] = []
    try:
        found.extend(problems)
    except (AttributeError, TypeError) as error:
        seen = f"It has a value of a wrong type ({error})."
        why = "Each value has one type, which docs/python.md names."
        # What was found before is most likely why.
        found = found or [
            Problem(code="PIPELINE_VALUE", saw=seen, why=why, fix="Correct the value.")
        ]
    return tuple(found)


def suggest(wrong: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Say what was probably meant, as an instruction.

    Args:
        wrong: What was written.
        known: What could have been.
        otherwise: What to say when nothing known is near; else all are listed.
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
    """Say that what stands at a key is empty."""
    return Problem(
        code="PIPELINE_VALUE",
        at=at,
        saw=f"{at[-1]} is empty.",
        why="Without it there is nothing to do.",
        fix="Fill it in.",
    )
