"""Check a lookup's rows, so that an event matches at most one of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallyweir.schemas.formats.debezium_envelope import OP
from tallyweir.schemas.formats.decoded_columns import DecodedEvents
from tallyweir.schemas.pipeline.events.enrichment import Enrichment
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.source.event_columns import OFFSET

VALID_FROM = "tallyweir_valid_from"
VALID_UNTIL = "tallyweir_valid_until"

#: Operations of Debezium that take rows away.
_DELETION, _TRUNCATION = "d", "t"
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)

_Key = tuple[object, ...]
_Range = tuple[datetime, datetime]


def key_column(number: int) -> str:
    """Name the copy's column that must equal the event's n-th key."""
    return f"tallyweir_on_{number}"


def copied_columns(enrichment: Enrichment) -> dict[str, str]:
    """Map the columns of a copy to the lookup's columns, in the copy's order."""
    keys = {key_column(n): name for n, name in enumerate(enrichment.on.values())}
    span = (
        {}
        if enrichment.as_of is None
        else {
            VALID_FROM: enrichment.as_of.valid_from,
            VALID_UNTIL: enrichment.as_of.valid_until,
        }
    )
    return {**keys, **span, **enrichment.select}


def without_deleted(
    changes: pa.Table,
    decoded: DecodedEvents,
    enrichment: Enrichment,
    *,
    partitions: int,
) -> pa.Table:
    """Leave out the rows that their newest changes, or a truncation, took away.

    Args:
        changes: The newest record of each key, with its ``OFFSET``.
        decoded: What they hold, with their operations.
        enrichment: The lookup.
        partitions: Those of its topic.

    Raises:
        ConfigurationError: ``LOOKUP_UNREADABLE``: with several partitions it is unknown
            which rows a truncation took away.
    """
    operations = np.array(decoded.columns[OP].to_pylist(), dtype=object)
    offsets = np.asarray(changes.column(OFFSET))
    is_kept = operations != _DELETION
    is_kept[list(decoded.skipped)] = False
    truncations = offsets[operations == _TRUNCATION]
    if truncations.size:
        # It has no key, so of all truncations of a partition only the newest is here.
        last = int(truncations.max())
        if partitions > 1:
            raise ConfigurationError(
                "LOOKUP_UNREADABLE",
                saw=f"A record of {enrichment.label} at offset {last} says that the "
                "table was truncated.",
                why="Among several partitions it does not tell which rows were there "
                "before.",
                fix="Let the connector leave truncations out (skipped.operations=t), "
                "delete the topic, and let it send the rows again.",
            )
        is_kept &= offsets > last
    return changes.filter(pa.array(is_kept))


def check_rows(rows: pa.Table, enrichment: Enrichment) -> pa.Table:
    """Return the rows, with ranges as instants, if no event can match two of them.

    Rows with a null in their key, or with an empty range, match nothing. They may occur
    any number of times.

    Raises:
        ConfigurationError: ``LOOKUP_AMBIGUOUS`` (a key occurs twice, or ranges of a key
            overlap), ``LOOKUP_RANGE`` (a range ends before it begins) or
            ``LOOKUP_TYPE`` (ranges are not instants).
    """
    if enrichment.as_of is not None:
        for name in (VALID_FROM, VALID_UNTIL):
            position = rows.column_names.index(name)
            instants = _as_instants(rows.column(name), name, enrichment)
            rows = rows.set_column(position, name, instants)
    ranges: defaultdict[_Key, list[_Range]] = defaultdict(list)
    for key, valid in _keyed_ranges(rows, enrichment):
        if valid[0] > valid[1]:
            raise ConfigurationError(
                "LOOKUP_RANGE",
                saw=f"The lookup {enrichment.label} has a range of "
                f"{_told(key, enrichment)} that ends at {valid[1]}, before it begins "
                f"at {valid[0]}.",
                why="The range contains no instant, so the row must be a mistake.",
                fix=f"Correct the row in {enrichment.label}.",
            )
        if valid[0] < valid[1]:
            ranges[key].append(valid)
    for key, found in ranges.items():
        for former, following in pairwise(sorted(found)):
            if following[0] < former[1]:
                raise _ambiguous(key, former, following, enrichment)
    return rows


def _keyed_ranges(
    rows: pa.Table, enrichment: Enrichment
) -> Iterator[tuple[_Key, _Range]]:
    keys = [
        # NaN equals itself in Spark, but not in Python.
        ["NaN" if value != value else value for value in column.to_pylist()]  # noqa: PLR0124
        for column in map(rows.column, map(key_column, range(len(enrichment.on))))
    ]
    always: list[_Range] = [(_EARLIEST, _LATEST)] * rows.num_rows
    ranges = (
        always
        if enrichment.as_of is None
        else [
            (begin or _EARLIEST, end or _LATEST)
            for begin, end in zip(
                rows.column(VALID_FROM).to_pylist(),
                rows.column(VALID_UNTIL).to_pylist(),
                strict=True,
            )
        ]
    )
    for *key, valid in zip(*keys, ranges, strict=True):
        if None not in key:
            yield tuple(key), valid


def _as_instants(
    column: pa.ChunkedArray, name: str, enrichment: Enrichment
) -> pa.ChunkedArray:
    """Read a range's ends as instants; days, and times without a zone, are in UTC."""
    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("us"))
    if pa.types.is_timestamp(column.type):
        if column.type.tz is None:
            column = pc.assume_timezone(column, "UTC")
        return column.cast(pa.timestamp("us", tz="UTC"))
    if pa.types.is_null(kind):
        return column.cast(pa.timestamp("us", tz="UTC"))
    lookup_column = copied_columns(enrichment)[name]
    raise ConfigurationError(
        "LOOKUP_TYPE",
        saw=f"Column {lookup_column} of the lookup {enrichment.label} is of type "
        f"{kind}.",
        why="An event's time can only be compared with instants or days.",
        fix="Choose another column for as_of, or cast it in a view.",
    )


def _ambiguous(
    key: _Key, former: _Range, following: _Range, enrichment: Enrichment
) -> ConfigurationError:
    told = _told(key, enrichment)
    columns = ", ".join(enrichment.on.values())
    if enrichment.as_of is None:
        return ConfigurationError(
            "LOOKUP_AMBIGUOUS",
            saw=f"The lookup {enrichment.label} has more than one row with {told}.",
            why="Each event that matches them would count more than once.",
            fix=f"Make ({columns}) unique in {enrichment.label}.",
        )
    return ConfigurationError(
        "LOOKUP_AMBIGUOUS",
        saw=f"The lookup {enrichment.label} has rows with {told} whose ranges overlap: "
        f"one ends at {former[1]}, another begins at {following[0]}.",
        why="Events in both ranges would count more than once.",
        fix=f"Let the ranges of one ({columns}) end where the next begins.",
    )


def _told(key: _Key, enrichment: Enrichment) -> str:
    return str(dict(zip(enrichment.on.values(), key, strict=True)))
