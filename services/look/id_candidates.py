"""Which fields, headers or keys could be the ID of events, by what they hold.

A value is an ID if it stands for one payload: copies are repeats, and the same ID with
another payload is a conflict. To bound work, ``SETTLED_AT`` records decide which of
many fields are worth counting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tallyweir.services.look.field_profile import is_id_name
from tallyweir.services.look.identity_store import IdentityCounts, IdentityStore
from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array, U64Array

KEY = "key"
HEADER = "header:"
SETTLED_AT = 1_000
ID_CHARACTERS_MAX = 200
_NOTED_MAX = 32
_KEPT_MAX = 6
#: Beyond this share of conflicts, a field is no ID.
CONFLICTS_MAX = 0.001
_HOPELESS = 0.01
NotedColumn = tuple[BoolArray, pa.Array]
"""Which of some records have a value, and the bytes of those values."""

_BEST_NAMES = frozenset({"id", "event_id", "eventid", "message_id", "uuid", "ce_id"})
_SURE, _LIKELY = 3, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class IdCandidate:
    """A possible ID.

    Attributes:
        name: As ``event_id`` has it, or ``key``.
        counts: How its values come again.
        lacking: Records without it.
        is_partly: Whether only the first records were counted.
    """

    name: str
    counts: IdentityCounts
    lacking: int
    is_partly: bool = False

    @property
    def conflict_share(self) -> float:
        """The share of the values that are conflicts."""
        return self.counts.conflicts / max(1, self.counts.values)

    @property
    def unique_share(self) -> float:
        """The share of different values among all."""
        return self.counts.distinct / max(1, self.counts.values)


@dataclass(slots=True)
class IdCandidates:
    """Notes the values of possible IDs.

    Values are noted by the row that their record has in a batch, in any order.
    ``flush`` ends the batch.

    Attributes:
        store: Counts them.
        numbers: The number of each possible ID in the store.
        events: Records that were noted.
        dropped: Possible IDs that were given up, with the counts until then.
    """

    store: IdentityStore
    numbers: dict[str, int] = field(default_factory=dict)
    events: int = 0
    dropped: dict[str, IdCandidate] = field(default_factory=dict)
    is_settled: bool = False
    _payloads: dict[int, bytes] = field(default_factory=dict)
    _values: dict[int, dict[int, bytes]] = field(default_factory=dict)
    _columns: list[tuple[I64Array, U64Array, Mapping[str, NotedColumn]]] = field(
        default_factory=list
    )

    def add(
        self, row: int, values: Sequence[tuple[str, bytes]], payload: bytes
    ) -> None:
        """Note the possible IDs of one record, and its payload."""
        self.events += 1
        self._payloads[row] = payload
        for name, value in values:
            number = self.numbers.get(name)
            if number is None:
                if self.is_settled or name in self.dropped:
                    continue
                if len(self.numbers) >= _NOTED_MAX:
                    continue
                number = self.numbers[name] = len(self.numbers)
            self._values.setdefault(number, {})[row] = value
        if self.events == SETTLED_AT and not self.is_settled:
            self.flush()
            self._settle()

    def add_columns(
        self, rows: I64Array, payloads: pa.Array, columns: Mapping[str, NotedColumn]
    ) -> None:
        """Note many records, after ``SETTLED_AT`` of them.

        Args:
            rows: The row of each record.
            payloads: Their payloads.
            columns: For each possible ID, which records have it, and their values.
        """
        self.events += rows.size
        self._columns.append((rows, self.store.hash_payloads(payloads), columns))

    def flush(self) -> None:
        """Give the values of a batch to the store, in the order of its rows."""
        alone = np.array(list(self._payloads), np.int64)
        hashes = self.store.hash_payloads(
            pa.array(list(self._payloads.values()), pa.binary())
        )
        places = dict(zip(self._payloads, range(alone.size), strict=True))
        for name, number in self.numbers.items():
            values = self._values.get(number, {})
            chosen = np.array([places[row] for row in values], np.int64)
            parts = [
                (alone[chosen], hashes[chosen], pa.array(values.values(), pa.binary()))
            ]
            for rows, payloads, columns in self._columns:
                if name in columns:
                    has, column = columns[name]
                    parts.append((rows[has], payloads[has], column))
            self._store(number, parts)
        self._payloads.clear()
        self._values.clear()
        self._columns.clear()

    def _store(
        self, number: int, parts: Sequence[tuple[I64Array, U64Array, pa.Array]]
    ) -> None:
        rows = np.concatenate([part[0] for part in parts])
        if not rows.size:
            return
        order = np.argsort(rows)
        payloads = np.concatenate([part[1] for part in parts])[order]
        values = pa.concat_arrays([part[2] for part in parts])
        if len(parts) > 1 and len(parts[0][0]):
            values = values.take(pa.array(order))
        self.store.add(number, values, payloads)

    def give_up(self, names: Iterable[str]) -> None:
        """Count some possible IDs no further, because their values cannot be IDs."""
        self.flush()
        for name in [one for one in names if one in self.numbers]:
            self.dropped[name] = self._count(name, is_partly=True)
            self.store.drop([self.numbers.pop(name)])

    def count(self) -> list[IdCandidate]:
        """Count all possible IDs, the best first."""
        self.flush()
        found = [self._count(name) for name in self.numbers]
        return _ranked([*found, *self.dropped.values()])

    def _count(self, name: str, *, is_partly: bool = False) -> IdCandidate:
        counts = self.store.count(self.numbers[name])
        return IdCandidate(
            name=name,
            counts=counts,
            lacking=self.events - counts.values,
            is_partly=is_partly,
        )

    def _settle(self) -> None:
        self.is_settled = True
        ranked = _ranked([self._count(name) for name in self.numbers])
        kept = [one for one in ranked if one.name == KEY or not _is_hopeless(one)]
        self.give_up(
            one.name
            for one in ranked
            if one not in kept[:_KEPT_MAX] and one.name != KEY
        )


def name_score(name: str, topic: str = "") -> int:
    """Rate how much a name is one of an ID; 0 if it is not."""
    plain = name.removeprefix(HEADER).lower()
    thing = topic.rpartition(".")[2].lower().replace("-", "_")
    things = {thing, thing.removesuffix("s"), thing.removesuffix("es")}
    own = {f"{one}_id" for one in things} | {f"{one}id" for one in things}
    if plain in _BEST_NAMES or (topic and plain in own):
        return _SURE
    last = name.rpartition(".")[2]
    if not is_id_name(last.removeprefix(HEADER)):
        return 0
    return _LIKELY - (1 if "." in name else 0)


def choose_id(
    candidates: Sequence[IdCandidate], usable: frozenset[str], topic: str
) -> IdCandidate | None:
    """Choose the ID; None if a record's position must be it.

    Args:
        candidates: All possible IDs.
        usable: The names of those that a pipeline could use.
        topic: The topic's name; ``order_id`` is likely that of ``orders``.
    """
    fitting = [
        one
        for one in candidates
        if one.name in usable
        and not one.lacking
        and not one.is_partly
        and one.counts.values
        and one.conflict_share <= CONFLICTS_MAX
        and name_score(one.name, topic)
    ]
    return max(
        fitting,
        key=lambda one: (
            name_score(one.name, topic),
            one.unique_share,
            not one.name.startswith(HEADER),
        ),
        default=None,
    )


def _is_hopeless(one: IdCandidate) -> bool:
    return one.lacking > 0 or one.conflict_share > _HOPELESS


def _ranked(candidates: Sequence[IdCandidate]) -> list[IdCandidate]:
    return sorted(
        candidates,
        key=lambda one: (one.lacking > 0, one.conflict_share, -name_score(one.name)),
    )
