"""Gathers the problems of one file, so that one error shows all of them by line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

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
