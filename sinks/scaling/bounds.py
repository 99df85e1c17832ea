"""The bounds within which a pipeline is scaled; the operator sets them."""

from __future__ import annotations

from dataclasses import dataclass

from tallyweir.sinks.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A range of numbers, with both ends included."""

    least: int
    most: int

    def clamp(self, number: int) -> int:
        """Return the number of the range that is nearest to this one."""
        return min(self.most, max(self.least, number))

    def __str__(self) -> str:
        return f"{self.least:,} to {self.most:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What may be scaled, and how far; a value of None is not scaled.

    Attributes:
        executors: Spark's executors of the pipeline's driver.
        batch_offsets: Offsets that one batch reads at most.
    """

    executors: Range | None = None
    batch_offsets: Range | None = None


#: Bounds of a pipeline for which no operator has set any.
NOT_SCALED = Bounds()


def parse_range(
    what: str, *, least: int | None, most: int | None, lowest: int
) -> Range | None:
    """Return a range from the operator's numbers; None without any.

    Args:
        what: Name of the range, for the error.
        least: Its least number; None for ``lowest``, or for ``most`` if that is less.
        most: Its greatest number.
        lowest: Default of the least number.

    Raises:
        ConfigurationError: ``SCALING_BOUNDS``.
    """
    if least is None and most is None:
        return None
    if most is None:
        raise _wrong(f"The minimum number of {what} is set, but not the maximum.")
    least = min(lowest, most) if least is None else least
    if not 1 <= least <= most:
        raise _wrong(f"The bounds of {what} are {least:,} and {most:,}.")
    return Range(least=least, most=most)


def _wrong(saw: str) -> ConfigurationError:
    return ConfigurationError(
        "SCALING_BOUNDS",
        saw=saw,
        why="Bounds are two whole numbers, at least 1; the minimum must not exceed "
        "the maximum.",
        fix="Give both, such as --min-executors 1 --max-executors 8.",
    )
