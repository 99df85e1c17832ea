"""What values a field of JSON documents has, and which type holds all of them exactly.

Types leave room where that costs little: a whole number is ``integer`` only if all
values are far from its bounds and the name is not that of an ID; a ``numeric`` has more
digits before its point than were seen. Numbers with many decimal places are ``double
precision`` if it gives back every digit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal

from tallyweir.schemas.formats.json.json_canonical import canonical_number, digits_of
from tallyweir.schemas.formats.json.json_text import Number, Value
from tallyweir.schemas.formats.json.json_times import (
    TimeRangeError,
    read_date,
    read_moment,
)
from tallyweir.schemas.schema_tree import LONG

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID_NAME = re.compile(r"(?i)(^|.*[_\-.])(id|uuid|guid|key|number|no)$|.*[a-z](Id|ID)$")
_TIME_NAME = re.compile(
    r"(?i).*(time|date|stamp|created|updated|occurred|_at$|^at$|^ts$|_ts$|^ts_).*"
)
_CREATED_NAME = re.compile(r".*[a-z](At|On|Ts)$")
#: Whole numbers below it stay far from the bounds of an integer.
_SMALL = 1_000_000
_SCALE_MAX = 6
_PRECISION_MIN = 12
_ROOM_DIGITS = 4
_PRECISION_MAX = 38
#: 2000 and 2100 in seconds; a unit's numbers lie between their multiples.
_EPOCH_SECONDS = (946_684_800, 4_102_444_800)
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredType:
    """A field's type.

    Attributes:
        sql: As ``fields`` of a pipeline has it.
        note: What somebody should know of it; empty if nothing.
    """

    sql: str
    note: str = ""


def is_id_name(name: str) -> bool:
    """Whether a field's name is one that IDs have."""
    return _ID_NAME.fullmatch(name) is not None


def is_time_name(name: str) -> bool:
    """Whether a field's name is one that times have."""
    return bool(_TIME_NAME.fullmatch(name) or _CREATED_NAME.fullmatch(name))


@dataclass(slots=True)
class NumberProfile:
    """The numbers of a field."""

    count: int = 0
    lowest: int = 0
    highest: int = 0
    whole_digits: int = 0
    scale: int = 0
    fits_double: bool = True

    def add(self, number: Number) -> None:
        """Note a number."""
        digits = digits_of(number.token)
        power = len(digits.digits) + digits.exponent
        self.whole_digits = max(self.whole_digits, power)
        self.scale = max(self.scale, -digits.exponent)
        if digits.exponent >= 0 and power <= _PRECISION_MAX:
            whole = int((digits.digits or "0") + "0" * digits.exponent)
            whole = -whole if digits.is_negative else whole
            is_first = self.count == 0
            self.lowest = whole if is_first else min(self.lowest, whole)
            self.highest = whole if is_first else max(self.highest, whole)
        self.count += 1
        self.check_doubles([number.token])

    def check_doubles(self, tokens: Iterable[str]) -> None:
        """Note whether a double gives back each digit of these numbers."""
        self.fits_double = self.fits_double and all(map(_is_double, tokens))

    def infer(self, name: str) -> InferredType:
        """Choose a type."""
        if self.scale > 0:
            return self._infer_fraction()
        if self.whole_digits > _PRECISION_MAX:
            return InferredType(sql=self._wide())
        if LONG[0] <= self.lowest and self.highest <= LONG[1]:
            is_small = max(-self.lowest, self.highest) < _SMALL
            sql = "integer" if is_small and not is_id_name(name) else "bigint"
            unit = self.epoch_unit(name)
            note = f"may be `timestamptz epoch {unit}`" if unit else ""
            return InferredType(sql=sql, note=note)
        return InferredType(sql=f"numeric({_PRECISION_MAX},0)")

    def epoch_unit(self, name: str) -> str | None:
        """The unit by which the numbers would be moments from 2000 to 2100."""
        if self.scale > 0 or not self.count or not is_time_name(name):
            return None
        for unit, factor in _UNITS.items():
            lowest, highest = (one * factor for one in _EPOCH_SECONDS)
            if lowest <= self.lowest and self.highest <= highest:
                return unit
        return None

    def _infer_fraction(self) -> InferredType:
        whole = max(self.whole_digits, 1)
        if self.scale <= _SCALE_MAX and whole + self.scale <= _PRECISION_MAX:
            wished = max(_PRECISION_MIN, whole + self.scale + _ROOM_DIGITS)
            precision = min(wished, _PRECISION_MAX)
            return InferredType(sql=f"numeric({precision},{self.scale})")
        if self.fits_double:
            return InferredType(sql="double precision")
        if whole + self.scale <= _PRECISION_MAX:
            return InferredType(sql=f"numeric({_PRECISION_MAX},{self.scale})")
        return InferredType(sql="jsonb", note="no numeric has so many digits")

    def _wide(self) -> str:
        return "double precision" if self.fits_double else "jsonb"


@dataclass(slots=True)
class TextProfile:
    """The texts of a field: what all of them are."""

    count: int = 0
    are_uuids: bool = True
    are_dates: bool = True
    are_moments: bool = True
    are_local: bool = True
    need_truncation: bool = False

    def add(self, text: str) -> None:
        """Note a text."""
        self.count += 1
        self.are_uuids = self.are_uuids and _UUID.fullmatch(text) is not None
        self.are_dates = self.are_dates and _is_date(text)
        for name, is_local in (("are_moments", False), ("are_local", True)):
            if getattr(self, name):
                setattr(self, name, self._is_moment(text, is_local=is_local))

    def _is_moment(self, text: str, *, is_local: bool) -> bool:
        try:
            moment_of(text, is_local=is_local)
        except TimeRangeError:
            try:
                moment_of(text, is_local=is_local, is_truncated=True)
            except ValueError:
                return False
            self.need_truncation = True
        except ValueError:
            return False
        return True

    def infer(self) -> InferredType:
        """Choose a type."""
        if self.are_uuids:
            return InferredType(sql="uuid")
        if self.are_dates:
            return InferredType(sql="date")
        truncated = " truncated" if self.need_truncation else ""
        note = "digits beyond microseconds are cut off" if truncated else ""
        if self.are_moments:
            return InferredType(sql=f"timestamptz{truncated}", note=note)
        if self.are_local:
            zone = "has no offset; `timestamptz at 'ZONE'` if its zone is known"
            return InferredType(sql=f"timestamp{truncated}", note=zone)
        return InferredType(sql="text")


def moment_of(text: str, *, is_local: bool = False, is_truncated: bool = False) -> int:
    """Read a text of ISO 8601 as microseconds since 1970.

    Raises:
        ValueError: It is none, or it needs more digits.
    """
    return read_moment(text, zone="", is_local=is_local, is_truncated=is_truncated)


def _is_date(text: str) -> bool:
    try:
        read_date(text)
    except ValueError:
        return False
    return True


def _is_double(token: str) -> bool:
    found = float(token)
    if found in {float("inf"), float("-inf")}:
        return False
    return canonical_number(str(Decimal(repr(found)))) == canonical_number(token)


@dataclass(slots=True)
class FieldProfile:
    """All values of one field.

    Attributes:
        example: The first value that is not null.
    """

    objects: int = 0
    arrays: int = 0
    booleans: int = 0
    numbers: NumberProfile = field(default_factory=NumberProfile)
    texts: TextProfile = field(default_factory=TextProfile)
    example: Value = None

    @property
    def values(self) -> int:
        """How many values there are that are not null."""
        return sum(self._counts())

    @property
    def is_object(self) -> bool:
        """Whether all values are objects."""
        return self.objects > 0 and self.objects == self.values

    def add(self, value: Value) -> None:
        """Note a value."""
        if value is None:
            return
        if self.values == 0:
            self.example = value
        match value:
            case bool():
                self.booleans += 1
            case str():
                self.texts.add(value)
            case Number():
                self.numbers.add(value)
            case dict():
                self.objects += 1
            case list():
                self.arrays += 1

    def infer(self, name: str) -> InferredType:
        """Choose the type of a field of this name."""
        kinds = [one for one in self._counts() if one]
        if not kinds:
            return InferredType(sql="jsonb", note="always null")
        if len(kinds) > 1:
            return InferredType(sql="jsonb", note="has values of several types")
        if self.texts.count:
            return self.texts.infer()
        if self.numbers.count:
            return self.numbers.infer(name)
        return InferredType(sql="boolean" if self.booleans else "jsonb")

    def _counts(self) -> tuple[int, ...]:
        return (
            self.objects,
            self.arrays,
            self.booleans,
            self.numbers.count,
            self.texts.count,
        )
