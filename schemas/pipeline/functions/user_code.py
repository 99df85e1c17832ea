"""What users' own Python reports, how it fails, and the hash of its sources.

Each attempt gathers counters and distributions and sends them with its vote. So if a
task runs again, its figures still count once, and are committed with the batch.
"""

from __future__ import annotations

import hashlib
import math
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from tallyweir.sinks.protocol.measures import Measures, distribution_of

#: Names are few and fixed, like those of metrics: each batch has all of them.
FIGURES_MAX = 50
_FIGURE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


class CustomFigures:
    """The figures that functions report in one task attempt."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}
        self._values: dict[str, list[float]] = {}

    def count(self, name: str, amount: float) -> None:
        """Add to a counter."""
        if amount < 0:
            raise ValueError(f"{name}: a counter never falls; {amount} was added to it")
        self._counts[name] = self._counts.get(_checked(name, self._counts), 0) + amount

    def observe(self, name: str, value: float) -> None:
        """Add a value to a distribution."""
        self._values.setdefault(_checked(name, self._values), []).append(value)

    def measures(self) -> Measures:
        """Return all reported figures."""
        return Measures(
            counts=self._counts,
            distributions={n: distribution_of(v) for n, v in self._values.items()},
        )

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Gather the figures that functions report inside the block."""
        former = _gathering.set(self)
        try:
            yield
        finally:
            _gathering.reset(former)


_gathering: ContextVar[CustomFigures] = ContextVar("gathering")


def count(name: str, amount: float = 1) -> None:
    """Add to a counter of the pipeline.

    Args:
        name: Name of lower-case letters, digits and underscores.
        amount: Amount to add, at least 0.

    Raises:
        ValueError: The name or the amount cannot be used.
        RuntimeError: The call is not inside a function on keyed state. A transform
            reports by columns that ``Reported`` names.
    """
    _here().count(name, _finite(name, amount))


def observe(name: str, value: float) -> None:
    """Add a value to a distribution of the pipeline.

    Raises:
        ValueError: The name cannot be used, or the value is not finite.
        RuntimeError: As ``count``.
    """
    _here().observe(name, _finite(name, value))


def is_figure_name(name: str) -> bool:
    """Return whether a counter or a distribution may have a name."""
    return _FIGURE_NAME.fullmatch(name) is not None


def _here() -> CustomFigures:
    figures = _gathering.get(None)
    if figures is None:
        raise RuntimeError(
            "count and observe are for functions on keyed state; a transform adds "
            "columns that Pipeline(reported=...) names"
        )
    return figures


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{name}: {value} is not a number that can be added up")
    return value


def _checked(name: str, known: dict[str, float] | dict[str, list[float]]) -> str:
    if name in known:
        return name
    if not is_figure_name(name):
        raise ValueError(f"{name!r} is not a name of lower-case letters, digits and _")
    if len(known) >= FIGURES_MAX:
        raise ValueError(f"{name}: a pipeline reports {FIGURES_MAX} names at most")
    return name


#: The innermost frames show where it failed; outer frames show only callers. Frames
#: inside libraries show neither.
_FRAMES_SHOWN = 3


def describe_failure(error: BaseException, *, quote_message: bool) -> str:
    """Return where users' code failed: the traceback's last frames in one line.

    Args:
        error: The error that it raised.
        quote_message: Include the error's message. While events are processed, the
            message may quote one, and events must not appear in logs.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename
    ][-_FRAMES_SHOWN:]
    places = [
        f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in frames
    ]
    kind = type(error).__name__
    words = " ".join(str(error).split()) if quote_message else ""
    return " > ".join([*places, f"{kind}: {words}" if words else kind])


def hash_sources(files: Iterable[Path]) -> str:
    """Return 64 hex digits, equal for equal sources in any folder."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda path: path.name):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
