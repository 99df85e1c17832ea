"""The problems of one file, gathered so that one error shows all of them by line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from spark_jobs.pipeline.problems import Path, PipelineError, Problem

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Report:
    """Problems of one file as they are found, and the lines they are on.

    Attributes:
        file: The file's name as the user gave it.
        lines: Line of each path, from 1.
    """

    file: str
    lines: dict[Path, int] = field(default_factory=dict)
    _found: list[tuple[int, Problem]] = field(default_factory=list)

    def add(self, problem: Problem, line: int | None = None) -> None:
        """Keep a problem, on the given line or on that of its path."""
        self._found.append((line or self._line_of(problem.at), problem))

    def alias(self, model: Path, file: Path) -> None:
        """Let a path of the model, and all below it, stand for one of the file."""
        below = [path for path in self.lines if path[: len(file)] == file]
        for path in below:
            self.lines[model + path[len(file) :]] = self.lines[path]

    def attempt(
        self, at: Path, build: Callable[P, T], *args: P.args, **values: P.kwargs
    ) -> T | None:
        """Build a part; keep its problems under ``at`` if it cannot be."""
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

        What else a pipeline says of it can be checked then; it is never run, because
        the file has a problem.

        Args:
            at: Where the part is.
            build: What makes it.
            stand_ins: What to take for values that are None, which are reported
                already, and for those that the part refuses.
            values: What the file says.

        Returns:
            None if a value is wrong that nothing can stand in for.
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
        """Refuse the file if there is a problem, with all of them by line.

        Raises:
            PipelineError: There is.
        """
        if self._found:
            # The sort is stable: on one line, as found.
            found = sorted(self._found, key=lambda pair: pair[0])
            raise PipelineError(
                [problem for _, problem in found],
                [f"{self.file}:{line}" for line, _ in found],
            )

    def _line_of(self, path: Path) -> int:
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)
