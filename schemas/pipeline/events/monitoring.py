"""What people may see of a pipeline's events: rows, keys and its own figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tallyweir.schemas.pipeline.checks.names import check_column, check_distinct
from tallyweir.schemas.pipeline.checks.problems import Problem, raise_if_any
from tallyweir.schemas.pipeline.document.file_keys import Flag, Keys, Texts, WholeNumber
from tallyweir.schemas.pipeline.functions.user_code import FIGURES_MAX, is_figure_name
from tallyweir.sinks.protocol.samples import SAMPLES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring:
    """Data that may be shown besides counts and times.

    Attributes:
        show_keys: Show hot keys in the clear; otherwise as hashes, because a key may be
            the name of a person.
        samples: Number of rows kept of each step of the newest batch; 0 for none.
        redact: Columns of events, parts of them (``address.street``) and columns of
            outputs that are never shown, nor anything computed from them.
    """

    show_keys: bool = False
    samples: int = 0
    redact: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        raise_if_any("Monitoring", self._find_problems())

    def _find_problems(self) -> Iterator[Problem]:
        if not 0 <= self.samples <= SAMPLES_MAX:
            yield Problem(
                code="PIPELINE_LIMIT",
                at=("samples",),
                saw=f"The pipeline asks to keep {self.samples} rows of each step.",
                why="Samples are for people to read, and they are written with every "
                "batch.",
                fix=f"Write a number up to {SAMPLES_MAX}, such as 5, or leave it out.",
            )
        yield from check_distinct(list(self.redact), "redacted fields", ("redact",))


class MonitoringKeys(Keys[Monitoring]):
    """The keys of ``monitor``."""

    part = Monitoring

    show_keys: Flag = False
    samples: WholeNumber = 0
    redact: Texts = ()


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
