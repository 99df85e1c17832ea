"""Gathers the problems of one file, so that one error shows all of them by line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from schemas.pipeline.checks.problems import Path, PipelineError, Problem

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Report:
    """The problems of one file, and their lines.

    Attributes:
        file: The file's name as the user gave it.
        lines: Line of each path, from 1.
    """

    file: str
    lines: dict[Path, int] = field(default_factory=dict)
    _found: list[tuple[int, Problem]] = field(default_factory=list)

    def add(self, problem: Problem, line: int | None = None) -> None:
        """Keep a problem, on a given line or on the line of its path."""
        self._found.append((line or self._line_of(problem.at), problem))

    def alias(self, model: Path, file: Path) -> None:
        """Let a path of the model, and all paths below it, mean a path of the file."""
        below = [path for path in self.lines if path[: len(file)] == file]
        for path in below:
            self.lines[model + path[len(file) :]] = self.lines[path]

    def attempt(
        self, at: Path, build: Callable[P, T], *args: P.args, **values: P.kwargs
    ) -> T | None:
        """Build a part; if that fails, keep its problems under ``at``."""
        try:
            return build(*args, **values)
        except PipelineError as exc:
            for problem in exc.problems:
                self.add(problem.under(*at))
            return None

    def complete(
        self,
        at: Path,
        build: Callable[..., T],
        stand_ins: Mapping[str, object],
        **values: object,
    ) -> T | None:
        """Build a part as ``attempt`` does, or one that stands in for it.

        Then the checks of other parts that refer to it can go on. The stand-in never
        runs, because the file has a problem.

        Args:
            at: Path of the part.
            build: Builds the part.
            stand_ins: Values to take for values that are None, which are reported
                already, and for values that the part refuses.
            values: Values from the file.

        Returns:
            None if a wrong value has no stand-in.
        """
        missing = {key: one for key, one in stand_ins.items() if values[key] is None}
        given = {**values, **missing}
        try:
            return build(**given)
        except PipelineError as exc:
            for problem in exc.problems:
                self.add(problem.under(*at))
            wrong = {str(problem.at[0]) for problem in exc.problems if problem.at}
        given |= {key: one for key, one in stand_ins.items() if key in wrong}
        try:
            return build(**given)
        except PipelineError:
            return None

    def raise_if_any(self) -> None:
        """Raise all problems, ordered by line, if there are any.

        Raises:
            PipelineError: There are problems.
        """
        if self._found:
            # The sort is stable: problems of one line stay in the order of finding.
            found = sorted(self._found, key=lambda pair: pair[0])
            raise PipelineError(
                [problem for _, problem in found],
                [f"{self.file}:{line}" for line, _ in found],
            )

    def _line_of(self, path: Path) -> int:
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)
