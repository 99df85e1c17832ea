"""One kind of act, its fields, and one request for it.

Fields are of a few kinds, and are checked before the act does anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.services.monitor.tokens import Role
from tallyweir.sinks.postgres.steering import ActRequest, check_reason
from tallyweir.sinks.protocol.errors import ConfigurationError

#: Most characters of a text: people read a reason.
TEXT_MAX = 500
#: Most digits of a number: every such number fits a bigint.
_DIGITS_MAX = 18


class FieldKind(Enum):
    """How the page asks for a value, and what is valid; all values travel as text.

    A moment is ISO 8601, in UTC on the page. A boolean is ``true``, or blank.
    """

    TEXT = "text"
    NUMBER = "number"
    MOMENT = "moment"
    CHOICE = "choice"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActField:
    """One argument of an act.

    Attributes:
        name: Name of the argument.
        label: The label that people read.
        kind: How the page asks for it.
        is_required: It must not be blank.
        is_fixed: The place on the page sets it, if anything does; users never type it.
        choices: The valid values, each with the text that people read.
        hint: How to write it, or what it means.
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
            why="The monitor cannot know what was meant, so it changed nothing.",
            fix=fix,
        )


class Arguments:
    """The checked arguments of an act; it refuses an argument that has no field.

    Args:
        fields: Fields of the act.
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
                saw=f"An argument {unknown[0][:40]!r} is unknown.",
                why="Without it the act might do more than was meant, so the monitor "
                "changed nothing.",
                fix=f"Correct its name; the arguments are: {known}.",
            )
        self._values = {one.name: given.get(one.name, "").strip() for one in fields}
        for one in fields:
            if one.name == "reason":
                check_reason(self._values["reason"])
            one.check(self._values[one.name])

    @property
    def reason(self) -> str:
        """Why; blank if the act takes no reason."""
        return self._values.get("reason", "")

    def text(self, name: str) -> str:
        """Return a value; blank if it was not given."""
        return self._values[name]

    def number(self, name: str) -> int | None:
        """Return a number; None if it was not given."""
        value = self._values[name]
        return int(value) if value else None

    def is_set(self, name: str) -> bool:
        """Whether a boolean was set."""
        return bool(self._values[name])


#: A field of every act but the end of a pause, which keeps the reason of the pause.
REASON = ActField(name="reason", label="Reason, kept in the history")


UNCHANGED = "Nothing was changed yet."

#: States of a pipeline that publishes, or would if its driver ran.
AT_WORK = ("RUNNING", "CAUGHT UP", "STALLED", "STOPPED", "DRAINING")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActCall:
    """One request for an act.

    Attributes:
        home: A connection of its own, which notes the user's name with each act.
        bootstrap: Address of the broker.
        pipeline: Name of the pipeline.
        arguments: Values by the names of the act's fields.
        dry_run: Only report what would be done.
    """

    home: Connection[TupleRow]
    bootstrap: str
    pipeline: str
    arguments: Arguments
    dry_run: bool

    @property
    def reason(self) -> str:
        """The reason for the act."""
        return self.arguments.reason

    def request(self, kind: str) -> ActRequest:
        """Return the request that ``tallyweir.sinks.postgres.steering`` takes."""
        return ActRequest(
            pipeline=self.pipeline,
            kind=kind,
            reason=self.reason,
            dry_run=self.dry_run,
        )

    def then(self, after: str) -> str:
        """Return the last line: that nothing has changed, or what happens next."""
        return UNCHANGED if self.dry_run else after


@dataclass(frozen=True, slots=True, kw_only=True)
class ActKind:
    """One kind of act.

    Attributes:
        name: Name in addresses and notes.
        title: Text of its button.
        command: The command that does the same.
        fields: The arguments that it takes.
        do: Does it, or reports what it would do; returns lines for people.
        role: The least role that may do it.
        states: States of a pipeline in which its page shows the button below its name;
            empty if the page shows the button next to the thing that the act changes.
    """

    name: str
    title: str
    command: str
    fields: tuple[ActField, ...]
    do: Callable[[ActCall], Sequence[str]]
    role: Role = Role.OPERATOR
    states: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Describe it for the page."""
        return {
            "name": self.name,
            "title": self.title,
            "states": self.states,
            "fields": [one.as_json() for one in self.fields],
        }
