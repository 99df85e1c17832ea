"""A pipeline's own figures, computed from columns of its events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tallyweir.schemas.pipeline.checks.names import check_column
from tallyweir.schemas.pipeline.checks.problems import Problem, raise_if_any
from tallyweir.schemas.pipeline.functions.custom_figures import (
    FIGURES_MAX,
    is_figure_name,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The columns that committed events add to the pipeline's figures.

    Attributes:
        counters: Name of a counter to the column of numbers that is added to it.
        distributions: Name of a distribution to the column of its values.
    """

    counters: Mapping[str, str] = field(default_factory=dict)
    distributions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        raise_if_any("Reported", self._find_problems())

    @property
    def columns(self) -> frozenset[str]:
        """All columns that are read."""
        return frozenset((*self.counters.values(), *self.distributions.values()))

    def _find_problems(self) -> Iterator[Problem]:
        kinds = {"counters": self.counters, "distributions": self.distributions}
        for kind, figures in kinds.items():
            for name, column in figures.items():
                yield from check_column(column, (kind, name))
                if not is_figure_name(name):
                    yield _bad_figure(f"A figure is called {name!r}.", kind)
            if len(figures) > FIGURES_MAX:
                yield _bad_figure(f"There are {len(figures)} {kind}.", kind)


def _bad_figure(saw: str, kind: str) -> Problem:
    return Problem(
        code="PIPELINE_VALUE",
        at=(kind,),
        saw=saw,
        why="Names consist of lower-case letters, digits and underscores, like names "
        f"of metrics. Every batch stores all figures, so {FIGURES_MAX} is the "
        "limit.",
        fix="Correct it.",
    )
