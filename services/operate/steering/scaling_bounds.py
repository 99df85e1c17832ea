"""Sets the bounds of a pipeline's scaling from numbers that people give."""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres import steering
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.scaling.bounds import NOT_SCALED, Bounds, Range, parse_range

#: Default least number of offsets of a batch: the driver stages smaller batches itself.
_BATCH_LEAST = 20_000


def parse_bounds(
    *,
    executors: tuple[int | None, int | None],
    batch_offsets: tuple[int | None, int | None],
    off: bool,
) -> Bounds:
    """Read the least and the most of each bound; ``NOT_SCALED`` without any number.

    Raises:
        ConfigurationError: ``SCALING_BOUNDS``.
    """
    wanted = Bounds(
        executors=parse_range(
            "executors", least=executors[0], most=executors[1], lowest=1
        ),
        batch_offsets=parse_range(
            "offsets of a batch",
            least=batch_offsets[0],
            most=batch_offsets[1],
            lowest=_BATCH_LEAST,
        ),
    )
    if off and wanted != NOT_SCALED:
        raise ConfigurationError(
            "SCALING_BOUNDS",
            saw="The call both sets bounds and turns scaling off (--off).",
            why="The two contradict each other.",
            fix="Leave one of them out.",
        )
    return wanted


def change_bounds(
    home: Connection[TupleRow],
    pipeline: str,
    wanted: Bounds,
    *,
    off: bool,
    dry_run: bool,
) -> Bounds:
    """Set or remove bounds; return the bounds that then hold, or would hold.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``; ``SCALING_BOUNDS`` for no change.
    """
    if off:
        steering.end_scaling(home, pipeline, dry_run=dry_run)
        return NOT_SCALED
    if wanted == NOT_SCALED:
        raise ConfigurationError(
            "SCALING_BOUNDS",
            saw="No bound is given.",
            why="Without a bound there is nothing to change.",
            fix="Set a maximum of executors or of offsets, or leave the pipeline "
            "unchanged.",
        )
    return steering.set_bounds(home, pipeline, wanted, dry_run=dry_run)


def bounds_told(bounds: Bounds) -> str:
    """Report what is scaled, and how far."""
    if bounds == NOT_SCALED:
        return "scaling is off; a maximum of executors or of offsets turns it on"
    return (
        f"executors {_range_told(bounds.executors)}, "
        f"offsets of a batch {_range_told(bounds.batch_offsets)}"
    )


def _range_told(one: Range | None) -> str:
    return "as they are" if one is None else str(one)
