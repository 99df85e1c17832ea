"""Within which bounds a pipeline may be scaled; whoever operates it sets them."""

from __future__ import annotations

from dataclasses import dataclass

from sinks.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The least and the most of something, both allowed."""

    least: int
    most: int

    def clamp(self, number: int) -> int:
        """Return the number of the range that is next to this one."""
        return min(self.most, max(self.least, number))

    def __str__(self) -> str:
        return f"{self.least:,} to {self.most:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What may be steered, and how far; what is None is left as it is.

    Attributes:
        executors: Spark's executors of the pipeline's driver.
        batch_offsets: Offsets that one batch reads at most.
    """

    executors: Range | None = None
    batch_offsets: Range | None = None


#: Of a pipeline that nobody has set bounds for.
NOT_SCALED = Bounds()


def parse_range(
    what: str, *, least: int | None, most: int | None, lowest: int
) -> Range | None:
    """Return a range from what an operator gave; None if he gave nothing.

    Args:
        what: Of what, for the error.
        least: Its least; None for ``lowest``, or for the most if that is less.
        most: Its most.
        lowest: What the least is where it is not given.

    Raises:
        ConfigurationError: ``SCALING_BOUNDS``.
    """
    if least is None and most is None:
        return None
    if most is None:
        raise _wrong(f"There is a least number of {what}, and no greatest.")
    least = min(lowest, most) if least is None else least
    if not 1 <= least <= most:
        raise _wrong(f"{what} are to be between {least:,} and {most:,}.")
    return Range(least=least, most=most)


def _wrong(saw: str) -> ConfigurationError:
    return ConfigurationError(
        "SCALING_BOUNDS",
        saw=saw,
        why="Bounds are two whole numbers from 1, and the least is not above the most.",
        fix="Give both, such as --min-executors 1 --max-executors 8.",
    )
