"""What an act asks for: fields of a few kinds, checked before anything is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from sinks.postgres.steering import check_reason
from sinks.protocol.errors import ConfigurationError

#: Characters of a text; a reason is read by people.
TEXT_MAX = 500
#: Digits of a number that a bigint holds.
_DIGITS_MAX = 18


class FieldKind(Enum):
    """How a value is asked for, and what it must be; all travel as text.

    A moment is ISO 8601, in UTC on the page. A boolean is ``true``, or blank.
    """

    TEXT = "text"
    NUMBER = "number"
    MOMENT = "moment"
    CHOICE = "choice"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActField:
    """One thing that is asked for.

    Attributes:
        name: Of the argument.
        label: What people read.
        kind: How it is asked for.
        is_required: Whether it may not be blank.
        is_fixed: Given by the place on the page, if at all, and never typed.
        choices: What may be chosen, by value, with what people read.
        hint: How it is written, or what it means.
    """

    name: str
    label: str
    kind: FieldKind = FieldKind.TEXT
    is_required: bool = True
    is_fixed: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    hint: str = ""

    def check(self, value: str) -> None:
        """Refuse a value that is not of this kind.

        Raises:
            ConfigurationError: ``ACT_ARGUMENT``.
        """
        if not value:
            if self.is_required:
                raise self._wrong("nothing was given", "Fill it in.")
            return
        if "\0" in value or any("\ud800" <= one <= "\udfff" for one in value):
            raise self._wrong(
                "a NUL, or half of a character", "Leave it out, or type it again."
            )
        if len(value) > TEXT_MAX:
            raise self._wrong(f"{len(value)} characters", f"Use at most {TEXT_MAX}.")
        if self.kind is FieldKind.NUMBER and not (
            value.isascii() and value.isdecimal() and len(value) <= _DIGITS_MAX
        ):
            raise self._wrong(f"{value[:40]!r}", "Give a whole number from 0.")
        if self.kind is FieldKind.BOOLEAN and value != "true":
            raise self._wrong(f"{value[:40]!r}", "Give true, or nothing.")
        if self.kind is FieldKind.CHOICE and value not in dict(self.choices):
            known = ", ".join(dict(self.choices))
            raise self._wrong(f"{value[:40]!r}", f"Choose one of {known}.")

    def as_json(self) -> dict[str, object]:
        """Describe it for the page."""
        return {
            "name": self.name,
            "label": self.label,
            "kind": self.kind.value,
            "is_required": self.is_required,
            "is_fixed": self.is_fixed,
            "choices": self.choices,
            "hint": self.hint,
        }

    def _wrong(self, saw: str, fix: str) -> ConfigurationError:
        return ConfigurationError(
            "ACT_ARGUMENT",
            saw=f"{self.label}: {saw}.",
            why="What is to be done is not clear, so nothing was.",
            fix=fix,
        )


class Arguments:
    """What was given for the fields of an act, checked; nothing else may be given.

    Args:
        fields: Of the act.
        given: Values by names.

    Raises:
        ConfigurationError: ``ACT_ARGUMENT`` or ``REASON_MISSING``.
    """

    def __init__(self, fields: Sequence[ActField], given: Mapping[str, str]) -> None:
        unknown = sorted(given.keys() - {one.name for one in fields})
        if unknown:
            known = ", ".join(one.name for one in fields) or "none"
            raise ConfigurationError(
                "ACT_ARGUMENT",
                saw=f"An argument {unknown[0][:40]!r} was given.",
                why="The act has no such argument, and without it may do more than was "
                "meant, so nothing was done.",
                fix=f"Correct its name; the arguments are: {known}.",
            )
        self._values = {one.name: given.get(one.name, "").strip() for one in fields}
        for one in fields:
            if one.name == "reason":
                check_reason(self._values["reason"])
            one.check(self._values[one.name])

    @property
    def reason(self) -> str:
        """Why; blank where it is not asked for."""
        return self._values.get("reason", "")

    def text(self, name: str) -> str:
        """Return what was given; blank if nothing was."""
        return self._values[name]

    def number(self, name: str) -> int | None:
        """Return a number; None if it was not given."""
        value = self._values[name]
        return int(value) if value else None

    def is_set(self, name: str) -> bool:
        """Whether a boolean was set."""
        return bool(self._values[name])


#: Asked for by every act but the end of a pause, whose own reason is kept.
REASON = ActField(name="reason", label="Reason, for whoever asks later")
