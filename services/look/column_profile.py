"""Note the documents of a batch together, as far as they hold nothing new.

The fields that were seen become a contract, which says of each what its values were so
far. The decoder of whole batches finds the documents that have no other field and no
other value. Of these, counts and extremes are noted by column. All others are left to
be noted one at a time; if they change what a field is, it makes another contract.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tallyweir.schemas.contract import DeclaredFields
from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.event_contracts import (
    EventContracts,
    load_event_contract,
)
from tallyweir.schemas.formats.json.json_canonical import canonical_string
from tallyweir.schemas.formats.json.json_fields import write_path
from tallyweir.services.look.document_fields import FieldNode
from tallyweir.services.look.field_profile import FieldProfile
from tallyweir.services.look.id_candidates import (
    HEADER,
    ID_CHARACTERS_MAX,
    KEY,
    NotedColumn,
)
from tallyweir.services.look.looked_record import LookedBatch
from tallyweir.services.look.time_candidates import UNIT_WIDTH, UNITS, NotedTimes
from tallyweir.services.look.value_kinds import ValueKind, are_plain
from tallyweir.sinks.seen_ids.ordering import BoolArray, I64Array

if TYPE_CHECKING:
    from tallyweir.schemas.formats.decoded_columns import EventDecoder
    from tallyweir.services.look.topic_profile import TopicProfile

_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_PLAIN_NUMBER = r"^-?[0-9]+(\.[0-9]+)?$"
#: Whole numbers up to here, and numbers of so many digits, are doubles.
_DOUBLE_INTEGER_MAX = 1 << 53
_DOUBLE_DIGITS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """A field whose values are noted by column.

    Attributes:
        name: Its path as a pipeline has it.
        column: The column that the decoder makes.
        type: The type that its values have had.
        node: What is known of it.
    """

    name: str
    column: str
    type: str
    node: FieldNode

    @property
    def read_as(self) -> str:
        """The type by which its values are decoded: one that tells all of them."""
        if self.type in {"integer", "bigint"}:
            return "bigint"
        if self.type.startswith("numeric"):
            return f"numeric(38,{self.node.profile.numbers.scale})"
        if self.type == "double precision":
            return "jsonb"
        return "text" if self.type == "uuid" else self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """An object whose fields are watched.

    Attributes:
        node: What is known of it.
        written: How it begins in the canonical form of a document.
        names: Of the fields in it.
    """

    node: FieldNode
    written: str
    names: Sequence[str]


class ColumnProfile:
    """Notes the documents of batches in a topic's profile, by column."""

    def __init__(self, profile: TopicProfile) -> None:
        self._profile = profile
        self._watched: list[_Watched] = []
        self._branches: list[_Branch] = []
        self._types: list[tuple[str, str]] = []
        self._decoder: EventDecoder | None = None

    def add(self, batch: LookedBatch, rows: Sequence[int]) -> Sequence[int]:
        """Note some rows of a batch; return those that must be noted alone."""
        if not rows:
            return rows
        self._prepare()
        if self._decoder is None:
            return rows
        values = pa.array([batch.values[row] for row in rows], pa.binary())
        decoded = self._decoder.decode(values)
        columns = {one.name: decoded.columns[one.column] for one in self._watched}
        assert decoded.canonical is not None, "JSON has a canonical form"
        payloads = decoded.canonical
        is_noted = decoded.is_event.copy()
        for one in self._watched:
            is_noted &= _fits(one, columns[one.name])
        for branch in self._branches:
            # An object without any value is one that must be seen.
            is_noted &= _has_any(branch, columns) | ~_holds(payloads, branch.written)
        noted = np.flatnonzero(is_noted)
        if noted.size:
            if noted.size < len(rows):
                taken = pa.array(noted)
                columns = {name: one.take(taken) for name, one in columns.items()}
                payloads = payloads.take(taken)
            self._note(batch, np.array(rows, np.int64)[noted], columns, payloads)
        return [rows[index] for index in np.flatnonzero(~is_noted).tolist()]

    def _prepare(self) -> None:
        """Make another decoder if the fields have changed."""
        leaves = list(self._profile.fields.leaves())
        watched = [
            _Watched(
                name=write_path(path),
                column=f"c{number}",
                type=node.profile.infer(path[-1]).sql,
                node=node,
            )
            for number, (path, node) in enumerate(leaves)
        ]
        types = [(one.name, one.read_as) for one in watched]
        if types == self._types:
            return
        self._types, self._watched = types, watched
        self._branches = list(_branches(self._profile.fields.root, leaves))
        self._decoder = None
        names = {path[0] for path, _ in leaves}
        if not are_plain(names):
            return
        declared = DeclaredFields(
            fields={one.name: f"{one.read_as} as {one.column}" for one in watched},
            unknown="refuse",
        )
        try:
            contract = load_event_contract(declared.reference)
        except ContractError:
            # Such as more fields than a contract may have.
            return
        wanted = [one.column for one in watched]
        self._decoder = EventContracts((contract,)).decoder(wanted)
        for one in watched:
            if not one.type.startswith(("timestamptz", "integer", "bigint")):
                self._profile.times.fail(one.name)
        self._profile.ids.give_up(
            one.name for one in watched if one.read_as not in {"text", "bigint"}
        )

    def _note(
        self,
        batch: LookedBatch,
        rows: I64Array,
        columns: Mapping[str, pa.Array],
        payloads: pa.Array,
    ) -> None:
        profile = self._profile
        profile.kinds[ValueKind.JSON] += rows.size
        profile.fields.documents += rows.size
        for one in self._watched:
            _note_values(one, columns[one.name].drop_null())
        for branch in self._branches:
            objects = int(_has_any(branch, columns).sum())
            branch.node.profile.objects += objects
        ids = dict(self._own_ids(batch, rows))
        partitions = np.array(batch.partitions, np.int64)[rows]
        times: dict[str, NotedTimes] = {}
        for one in self._watched:
            column = columns[one.name]
            if one.name in profile.ids.numbers:
                ids[one.name] = _ids_of(column)
            if one.name in profile.times.meters:
                has = np.asarray(column.is_valid())
                micros = self._micros(one, column.drop_null())
                if micros is None:
                    profile.times.fail(one.name)
                else:
                    times[one.name] = rows[has], partitions[has], micros
        profile.ids.add_columns(rows, payloads, ids)
        profile.times.add_columns(rows.size, times)

    def _own_ids(
        self, batch: LookedBatch, rows: I64Array
    ) -> Iterator[tuple[str, NotedColumn]]:
        """Yield the keys and the headers that may be IDs."""
        for name in self._profile.ids.numbers:
            values: list[bytes | None] | None = None
            if name == KEY:
                values = [batch.keys[row] for row in rows.tolist()]
            elif name.startswith(HEADER):
                header = name.removeprefix(HEADER)
                values = [_header(batch, row, header) for row in rows.tolist()]
            if values is not None:
                column = pa.array(values, pa.binary())
                yield name, (np.asarray(column.is_valid()), column.drop_null())

    def _micros(self, one: _Watched, values: pa.Array) -> I64Array | None:
        """Return times as microseconds; None if some are of no unit or another."""
        numbers = np.asarray(values.view(pa.int64()))
        if one.read_as != "bigint":
            return numbers
        _, unit = self._profile.times.meters[one.name]
        lowest = UNITS.get(unit, 0)
        if (
            not unit
            or (numbers < lowest).any()
            or (numbers >= lowest * UNIT_WIDTH).any()
        ):
            return None
        return numbers // 1_000 if unit == "ns" else numbers * (UNITS["us"] // lowest)


def _branches(
    root: FieldNode, leaves: Sequence[tuple[tuple[str, ...], FieldNode]]
) -> Iterator[_Branch]:
    names: dict[tuple[str, ...], list[str]] = {}
    for path, _ in leaves:
        for length in range(1, len(path)):
            names.setdefault(path[:length], []).append(write_path(path))
    for path, inner in names.items():
        node = root
        for name in path:
            node = node.members[name]
        written = f"{canonical_string(path[-1])}:{{"
        yield _Branch(node=node, written=written, names=inner)


def _has_any(branch: _Branch, columns: Mapping[str, pa.Array]) -> BoolArray:
    """Tell which documents surely have the object."""
    found: BoolArray = np.logical_or.reduce(
        [np.asarray(columns[name].is_valid()) for name in branch.names]
    )
    return found


def _holds(payloads: pa.Array, text: str) -> BoolArray:
    found: BoolArray = np.asarray(
        pc.fill_null(pc.match_substring(payloads, text), True)  # noqa: FBT003
    )
    return found


def _header(batch: LookedBatch, row: int, name: str) -> bytes | None:
    value = batch.record(row).headers.get(name)
    return value if value is None or len(value) <= ID_CHARACTERS_MAX else None


def _fits(one: _Watched, column: pa.Array) -> BoolArray:
    """Tell which values are of the kinds that the field has had."""
    is_null = np.asarray(column.is_null())
    if one.type == "uuid":
        return is_null | _matches(column, _UUID)
    if one.type == "double precision":
        return is_null | _matches(column, _PLAIN_NUMBER)
    if one.type != "jsonb":
        return np.ones(len(column), np.bool_)
    profile = one.node.profile
    if not profile.values:
        return is_null
    if profile.is_object and not one.node.members and not one.node.is_map:
        # Its fields would become columns.
        return is_null | _matches(column, "^{}$")
    return np.ones(len(column), np.bool_)


def _matches(column: pa.Array, pattern: str) -> BoolArray:
    found = pc.fill_null(pc.match_substring_regex(column, pattern), False)  # noqa: FBT003
    matched: BoolArray = np.asarray(found)
    return matched


def _note_values(one: _Watched, values: pa.Array) -> None:
    """Note values that are not null."""
    profile = one.node.profile
    if not len(values):
        return
    if one.type == "double precision":
        _note_doubles(profile, values)
    elif one.read_as == "bigint":
        _note_integers(profile, np.asarray(values))
    elif one.type.startswith("numeric"):
        _note_decimals(profile, values)
    elif one.type == "boolean":
        profile.booleans += len(values)
    elif one.type == "jsonb":
        _note_any(profile, values)
    else:
        profile.texts.count += len(values)


def _note_integers(profile: FieldProfile, values: I64Array) -> None:
    numbers = profile.numbers
    lowest, highest = int(values.min()), int(values.max())
    numbers.lowest = min(numbers.lowest, lowest)
    numbers.highest = max(numbers.highest, highest)
    digits = max(len(str(abs(lowest))), len(str(abs(highest))))
    numbers.whole_digits = max(numbers.whole_digits, digits if lowest or highest else 0)
    numbers.count += values.size
    if numbers.fits_double and max(-lowest, highest) > _DOUBLE_INTEGER_MAX:
        numbers.check_doubles(map(str, values.tolist()))


def _note_decimals(profile: FieldProfile, values: pa.Array) -> None:
    numbers = profile.numbers
    extremes = pc.min_max(values).as_py()
    lowest, highest = extremes["min"], extremes["max"]
    widest = max(abs(lowest), abs(highest))
    power = widest.adjusted() + 1 if widest else 0
    numbers.whole_digits = max(numbers.whole_digits, power)
    if numbers.scale == 0:
        numbers.lowest = min(numbers.lowest, int(lowest))
        numbers.highest = max(numbers.highest, int(highest))
    numbers.count += len(values)
    if numbers.fits_double and power + numbers.scale > _DOUBLE_DIGITS:
        numbers.check_doubles(str(one) for one in values.to_pylist() if _is_long(one))


def _is_long(value: Decimal) -> bool:
    return len(value.normalize().as_tuple().digits) > _DOUBLE_DIGITS


def _note_doubles(profile: FieldProfile, tokens: pa.Array) -> None:
    numbers = profile.numbers
    points = np.asarray(pc.find_substring(tokens, "."))
    lengths = np.asarray(pc.binary_length(tokens)).astype(np.int64)
    signs = np.asarray(pc.starts_with(tokens, "-")).astype(np.int64)
    wholes = np.where(points < 0, lengths, points) - signs
    is_below_one = np.asarray(pc.match_substring_regex(tokens, r"^-?0"))
    numbers.whole_digits = max(
        numbers.whole_digits, int(np.where(is_below_one, 0, wholes).max())
    )
    scales = np.where(points < 0, 0, lengths - points - 1)
    numbers.scale = max(numbers.scale, int(scales.max()))
    numbers.count += len(tokens)
    if numbers.fits_double:
        again = tokens.cast(pa.float64()).cast(pa.string())
        odd = tokens.filter(pc.not_equal(tokens, again))
        numbers.check_doubles(odd.to_pylist())


def _note_any(profile: FieldProfile, texts: pa.Array) -> None:
    """Count the kinds of values; what else is known of them no longer matters."""
    begins = pc.value_counts(pc.binary_slice(texts.view(pa.binary()), 0, 1))
    for begin, count in zip(
        begins.field(0).to_pylist(), begins.field(1).to_pylist(), strict=True
    ):
        match begin:
            case b'"':
                profile.texts.count += count
            case b"{":
                profile.objects += count
            case b"[":
                profile.arrays += count
            case b"t" | b"f":
                profile.booleans += count
            case _:
                profile.numbers.count += count


def _ids_of(column: pa.Array) -> NotedColumn:
    """Return the values that may be IDs, as ``TopicProfile`` does of one."""
    if pa.types.is_integer(column.type):
        has = pc.greater_equal(column, 0)
        texts = column.cast(pa.string())
    else:
        lengths = pc.utf8_length(column)
        has = pc.and_(pc.greater(lengths, 0), pc.less_equal(lengths, ID_CHARACTERS_MAX))
        texts = column
    has = pc.fill_null(has, False)  # noqa: FBT003 - Arrow's own signature
    return np.asarray(has), texts.filter(has).view(pa.binary())
