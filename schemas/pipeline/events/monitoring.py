"""Settings for what the monitor may show of a pipeline's events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tallyweir.schemas.pipeline.checks.names import check_distinct
from tallyweir.schemas.pipeline.checks.problems import Problem, raise_if_any
from tallyweir.schemas.pipeline.document.file_keys import Flag, Keys, Texts, WholeNumber
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
