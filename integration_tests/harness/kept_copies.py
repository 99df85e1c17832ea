"""Which copy of an event was kept, where several tasks have asked for its ID."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from integration_tests.harness.readings import Sent

#: Ends with partition and offset; a topic may come before.
Place = TypeVar("Place", bound=tuple[Any, ...])

_RANGES = """
SELECT topic, partition, from_offset, until_offset, sequence
FROM tallyweir.batch_partition
"""


def with_kept_copies(
    records: Mapping[Place, Sent],
    found: Mapping[Place, str],
    fetch: Callable[[str], Sequence[tuple[Any, ...]]],
) -> dict[Place, Sent]:
    """Let the copy that was kept be the one that had to be, if it was one of several.

    Of copies of an event that one batch reads in several partitions, the one whose
    task is the first to ask for its ID is kept, which is chance. Nothing else is: of
    copies in one partition the first is kept, and none that a later batch has read.

    Args:
        records: What was sent, one copy of each event with the fate ``committed``.
        found: What became of each.
        fetch: Asks the home what its batches have read.
    """
    ranges = fetch(_RANGES)

    def batch_of(place: Place) -> int:
        read = (
            sequence
            for *of, start, end, sequence in ranges
            if of[1 - len(place) :] == [*place[:-1]] and start <= place[-1] < end
        )
        return min(read, default=-1)

    copies: dict[bytes | None, list[Place]] = defaultdict(list)
    for place, record in records.items():
        if record.fate in {"committed", "duplicate"}:
            copies[record.value].append(place)
    settled = dict(records)
    for places in copies.values():
        kept = [place for place in places if records[place].fate == "committed"]
        if len(kept) != 1 or len(places) == 1:
            continue
        earliest = min(map(batch_of, places))
        firsts: dict[tuple[Any, ...], Place] = {}
        for place in sorted(places):
            if batch_of(place) == earliest:
                firsts.setdefault(place[:-1], place)
        chosen = [place for place in firsts.values() if found.get(place) == "committed"]
        if len(chosen) == 1:
            settled[kept[0]] = replace(records[kept[0]], fate="duplicate")
            settled[chosen[0]] = replace(records[chosen[0]], fate="committed")
    return settled
