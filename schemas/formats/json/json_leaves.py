"""The values of one named field in many rows, on their way to a column.

A leaf reads what is written in the usual way for all rows together. Every other value
is read alone, by the same reader as in a single document, and stored with the others.
"""

from __future__ import annotations

import datetime as dt
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from tallyweir.schemas.formats.json.json_canonical import canonical_text
from tallyweir.schemas.formats.json.json_codec import JsonLeaf
from tallyweir.schemas.formats.json.json_numbers import (
    Numbers,
    find_uuids,
    read_dates,
    read_moments,
    read_numbers,
)
from tallyweir.schemas.formats.json.json_scan import (
    POWERS,
    QUOTE,
    BoolArray,
    ByteArray,
    Cursor,
    I64Array,
    Scan,
    join,
)
from tallyweir.schemas.formats.json.json_text import Fault, Value, read_value
from tallyweir.schemas.formats.json.json_times import (
    EPOCH_DAY,
    HIGHEST_MICROS,
    UNIT_POWERS,
    micros_of,
)
from tallyweir.schemas.schema_tree import NUMBER_BOUNDS

_TEXTS = frozenset({"text", "uuid", "jsonb", "bytea"})
_BOUNDS = {"smallint": "smallint", "integer": "int", "bigint": "long"}
#: Every whole number up to here is a double, and so is every power of ten up to 1e22.
_DOUBLE_INTEGER_BITS = 53
_SINGLE_INTEGER_BITS, _SINGLE_POWER_MAX = 24, 10
_WORD_DIGITS_MAX = 18
_TRUE, _TRUE_MASK = int.from_bytes(b"true", "little"), (1 << 32) - 1
_FALSE, _FALSE_MASK = int.from_bytes(b"false", "little"), (1 << 40) - 1
_NULL = int.from_bytes(b"null", "little")
_WIDE = Context(prec=80)
_MINUS_OR_DIGIT = np.zeros(256, dtype=np.bool_)
_MINUS_OR_DIGIT[list(b"-0123456789")] = True


class Side:
    """Bytes that stand for what is not in the payloads in the form that is wanted.

    Places in it follow those in the payloads and their padding.
    """

    def __init__(self, scan: Scan) -> None:
        self._parts: list[bytes] = []
        self.end = scan.data.size

    def add(self, text: bytes) -> tuple[int, int]:
        """Add bytes; return where they lie."""
        start = self.end
        self._parts.append(text)
        self.end += len(text)
        return start, self.end

    def joined(self) -> bytes:
        """Return all bytes."""
        return b"".join(self._parts)


class Member:
    """The values of one name in the objects of many rows.

    Attributes:
        is_present: Which rows have it.
        starts: Where each row's value begins, in canonical form.
        stops: Where it ends.
        leaf: The field, if the contract names it and it is no object.
        is_value: For a leaf, which rows have a value that is not null.
        values: For a leaf, the values; for texts, where they begin.
        others: For a decimal, the upper words; for texts, where they end.
    """

    def __init__(
        self, scan: Scan, side: Side, leaf: JsonLeaf | None, depth: int
    ) -> None:
        rows = scan.starts.size
        self._scan, self._side, self._depth = scan, side, depth
        self.leaf = leaf
        self._heads: set[bytes | None] = set()
        self.is_present = np.zeros(rows, np.bool_)
        self.starts = np.zeros(rows, np.int64)
        self.stops = np.zeros(rows, np.int64)
        self.is_value = np.zeros(rows, np.bool_)
        is_float = leaf is not None and leaf.field.type in {"real", "double precision"}
        self.values: npt.NDArray[Any] = np.zeros(
            rows, np.float64 if is_float else np.int64
        )
        self.others = np.zeros(rows, np.int64)

    @property
    def head(self) -> bytes | None:
        """What stands before each value, such as ``,"name":``.

        None if it differs, or if a value does not lie in its payload.
        """
        return next(iter(self._heads)) if len(self._heads) == 1 else None

    def note_head(self, head: bytes | None) -> None:
        """Note what stands before the values that are read next; None if it differs."""
        self._heads.add(head)

    def read(self, cursor: Cursor, first: ByteArray) -> Cursor:
        """Read the value at each place; return a cursor behind the values.

        Rows without one, and rows that already have the member, are dropped.

        Args:
            cursor: Where the values begin.
            first: The byte at each place.
        """
        taken = self.is_present[cursor.where]
        if taken.any():
            cursor, first = cursor.keep(~taken), first[~taken]
        self.is_present[cursor.where] = True
        done: list[Cursor] = []
        is_null = first == ord("n")
        if is_null.any():
            done.append(self._read_nulls(cursor.keep(is_null)))
            cursor, first = cursor.keep(~is_null), first[~is_null]
        if cursor.rows.size:
            kind = "jsonb" if self.leaf is None else self.leaf.field.type
            field = None if self.leaf is None else self.leaf.field
            if field is not None and (field.carrier or field.unit == "days"):
                kind = "alone"
            done += self._read_kind(kind, cursor, first)
        return join(done) if done else cursor.none()

    def _read_kind(self, kind: str, cursor: Cursor, first: ByteArray) -> list[Cursor]:
        is_count = self.leaf is not None and bool(self.leaf.field.unit)
        match kind:
            case "boolean":
                return self._read_booleans(cursor)
            case "text" | "uuid" | "bytea" | "date" | "timestamp" | "timestamptz" if (
                not is_count
            ):
                return self._read_texts(cursor.keep(first == QUOTE))
            case "jsonb":
                return self._read_any(cursor, first)
            case "alone":
                return self._read_alone(cursor)
            case _:
                return self._read_numbers(cursor)

    def _read_any(self, cursor: Cursor, first: ByteArray) -> list[Cursor]:
        is_text = first == QUOTE
        is_number = _MINUS_OR_DIGIT[first]
        done: list[Cursor] = []
        if is_text.any():
            done += self._read_texts(cursor.keep(is_text))
        if is_number.any():
            done += self._read_numbers(cursor.keep(is_number))
        is_other = ~(is_text | is_number)
        if is_other.any():
            done += self._read_alone(cursor.keep(is_other))
        return done

    def _read_nulls(self, cursor: Cursor) -> Cursor:
        is_null = self._scan.words_at(cursor.at) & np.uint64(_TRUE_MASK) == _NULL
        cursor = cursor.keep(is_null)
        self._note(cursor.rows, cursor.at, cursor.at + 4)
        return cursor.moved(cursor.at + 4)

    def _note(self, rows: I64Array, starts: I64Array, stops: I64Array) -> None:
        where = self._scan.where(rows)
        self.starts[where] = starts
        self.stops[where] = stops

    def _read_booleans(self, cursor: Cursor) -> list[Cursor]:
        words = self._scan.words_at(cursor.at)
        is_true = words & np.uint64(_TRUE_MASK) == _TRUE
        is_boolean = is_true | (words & np.uint64(_FALSE_MASK) == _FALSE)
        is_true = is_true[is_boolean]
        cursor = cursor.keep(is_boolean)
        stops = cursor.at + np.where(is_true, 4, 5)
        self._note(cursor.rows, cursor.at, stops)
        self.values[cursor.where] = is_true
        self.is_value[cursor.where] = True
        return [cursor.moved(stops)]

    def _read_texts(self, cursor: Cursor) -> list[Cursor]:
        """Read the texts whose opening marks are at the places."""
        before = cursor
        cursor, starts, stops = cursor.text()
        if not cursor.rows.size:
            return []
        is_usual = self._take_texts(cursor, starts, stops)
        if is_usual is None or is_usual.all():
            self._note(cursor.rows, starts - 1, stops + 1)
            self.is_value[cursor.where] = True
            return [cursor]
        rows = cursor.rows[is_usual]
        self._note(rows, starts[is_usual] - 1, stops[is_usual] + 1)
        self.is_value[rows] = True
        other = before.keep(np.isin(before.rows, cursor.rows[~is_usual]))
        return [cursor.keep(is_usual), *self._read_alone(other)]

    def _take_texts(
        self, cursor: Cursor, starts: I64Array, stops: I64Array
    ) -> BoolArray | None:
        """Store the values of texts; tell for which it could be done."""
        escaped = self._scan.has_escapes(starts, stops)
        kind = "jsonb" if self.leaf is None else self.leaf.field.type
        if kind in _TEXTS:
            quote = int(kind == "jsonb")
            self.values[cursor.where] = starts - quote
            self.others[cursor.where] = stops + quote
            if kind == "uuid":
                return find_uuids(self._scan, starts, stops)
            if kind == "bytea":
                return np.zeros(starts.size, np.bool_)
            return None if escaped is None else ~escaped
        if kind == "date":
            values, is_usual = read_dates(self._scan, starts)
            is_usual &= stops - starts == 10  # noqa: PLR2004 - as in 2026-11-26
        else:
            values, is_usual = read_moments(
                self._scan, starts, stops, is_local=kind == "timestamp"
            )
        self.values[cursor.where] = values
        return is_usual

    def _read_numbers(self, cursor: Cursor) -> list[Cursor]:
        numbers = read_numbers(cursor)
        is_usual = self._take_numbers(cursor, numbers) & numbers.is_usual
        rows, at = cursor.rows, cursor.at
        if is_usual.all():
            self._note(rows, at, numbers.canonical_stops)
            self.is_value[cursor.where] = True
            return [cursor.moved(numbers.stops)]
        self._note(rows[is_usual], at[is_usual], numbers.canonical_stops[is_usual])
        self.is_value[rows[is_usual]] = True
        moved = cursor.moved(numbers.stops).keep(is_usual)
        return [moved, *self._read_alone(cursor.keep(~is_usual))]

    def _take_numbers(self, cursor: Cursor, numbers: Numbers) -> BoolArray:
        rows = cursor.where
        field = None if self.leaf is None else self.leaf.field
        match "jsonb" if field is None else field.type:
            case "numeric" if field is not None and field.precision:
                return self._take_decimals(rows, numbers, field.precision, field.scale)
            case "jsonb" | "numeric":
                self.values[rows] = cursor.at
                self.others[rows] = numbers.canonical_stops
                return numbers.is_usual
            case "double precision":
                return self._take_doubles(rows, numbers)
            case "real":
                return self._take_singles(rows, numbers)
            case "timestamp" | "timestamptz":
                assert field is not None
                return self._take_counts(rows, numbers, field.unit)
            case kind:
                lowest, highest = NUMBER_BOUNDS[_BOUNDS[kind]]
                values = numbers.signed(numbers.whole)
                self.values[rows] = values
                fits: BoolArray = (values >= lowest) & (values <= highest)
                fits &= numbers.scale == 0
                return fits

    def _take_decimals(
        self, rows: I64Array | slice, numbers: Numbers, precision: int, scale: int
    ) -> BoolArray:
        whole_max = POWERS[min(precision - scale, _WORD_DIGITS_MAX)]
        fits: BoolArray = (numbers.scale <= scale) & (numbers.whole < whole_max)
        if scale > _WORD_DIGITS_MAX:
            return np.zeros(numbers.scale.size, np.bool_)
        fits &= numbers.digits + scale <= _WORD_DIGITS_MAX
        behind = POWERS[np.clip(scale - numbers.scale, 0, _WORD_DIGITS_MAX)]
        values = numbers.signed(
            numbers.whole * POWERS[scale] + numbers.fraction * behind
        )
        self.values[rows] = values
        self.others[rows] = values >> 63
        return fits

    def _take_doubles(self, rows: I64Array | slice, numbers: Numbers) -> BoolArray:
        """A whole number that is a double, over a power of ten that is one, is exact.

        The quotient of the two is rounded once, to the nearest double.
        """
        fits: BoolArray = numbers.digits + numbers.scale <= _WORD_DIGITS_MAX
        powers = POWERS[np.minimum(numbers.scale, _WORD_DIGITS_MAX)]
        units = numbers.whole * powers + numbers.fraction
        fits &= units >> _DOUBLE_INTEGER_BITS == 0
        self.values[rows] = numbers.signed(units) / powers
        return fits

    def _take_singles(self, rows: I64Array | slice, numbers: Numbers) -> BoolArray:
        """As for doubles, with the powers of ten up to 1e10."""
        fits: BoolArray = numbers.digits + numbers.scale <= _SINGLE_POWER_MAX
        powers = POWERS[np.minimum(numbers.scale, _SINGLE_POWER_MAX)]
        units = numbers.whole * powers + numbers.fraction
        fits &= units >> _SINGLE_INTEGER_BITS == 0
        quotients = numbers.signed(units).astype(np.float32) / powers.astype(np.float32)
        self.values[rows] = quotients
        return fits

    def _take_counts(
        self, rows: I64Array | slice, numbers: Numbers, unit: str
    ) -> BoolArray:
        power = UNIT_POWERS[unit]
        whole = numbers.signed(numbers.whole)
        if power < 0:
            thousandths = POWERS[-power]
            self.values[rows] = whole // thousandths
            fits: BoolArray = (numbers.scale == 0) & (whole % thousandths == 0)
            return fits
        # The limit of both ends is that of the lower one, which is nearer.
        limit = HIGHEST_MICROS // 10**power // 10
        self.values[rows] = whole * POWERS[power]
        fits = numbers.whole <= limit
        fits &= numbers.scale == 0
        return fits

    def _read_alone(self, cursor: Cursor) -> list[Cursor]:
        """Read values one at a time; see the module."""
        kept = np.zeros(cursor.rows.size, np.bool_)
        at = cursor.at.copy()
        for index, row in enumerate(cursor.rows.tolist()):
            start = int(cursor.at[index])
            try:
                text = self._scan.text_at(start, int(self._scan.ends[row]))
                value, stop = read_value(text, 0, self._depth)
                self._store(row, value)
            except (Fault, UnicodeDecodeError):
                continue
            at[index] = start + len(text[:stop].encode())
            kept[index] = True
        moved = cursor.moved(at).keep(kept)
        quotes = self._scan.quotes.searchsorted(moved.at)
        return [Cursor(self._scan, moved.rows, moved.at, quotes)]

    def _store(self, row: int, value: Value) -> None:
        canonical = canonical_text(value).encode()
        self.starts[row], self.stops[row] = self._side.add(canonical)
        self._heads.add(None)
        if self.leaf is None:
            return
        found = self.leaf.read(value)
        self.is_value[row] = True
        match found:
            case str() | bytes():
                raw = found.encode() if isinstance(found, str) else found
                self.values[row], self.others[row] = self._side.add(raw)
            case Decimal():
                unscaled = int(found.scaleb(self.leaf.field.scale, _WIDE))
                low = unscaled & ((1 << 64) - 1)
                self.values[row] = low - (1 << 64) if low >> 63 else low
                self.others[row] = unscaled >> 64
            case dt.datetime():
                self.values[row] = micros_of(found)
            case dt.date():
                self.values[row] = (found - EPOCH_DAY).days
            case bool() | int() | float():
                self.values[row] = found
            case _:
                raise AssertionError(found)
