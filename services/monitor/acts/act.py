"""One kind of act, and somebody's call for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import TupleRow

from services.monitor.acts.fields import ActField, Arguments
from services.monitor.tokens import Role
from sinks.postgres.steering import ActRequest

UNCHANGED = "Nothing was changed yet."

#: States of a pipeline that publishes, or would if its driver ran.
AT_WORK = ("RUNNING", "CAUGHT UP", "STALLED", "STOPPED", "DRAINING")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActCall:
    """An act that somebody asks for.

    Attributes:
        home: A connection of its own, which notes what it does with his name.
        bootstrap: Of the broker.
        pipeline: Its name.
        arguments: By the names of the act's fields.
        dry_run: Whether it is only told what would be done.
    """

    home: Connection[TupleRow]
    bootstrap: str
    pipeline: str
    arguments: Arguments
    dry_run: bool

    @property
    def reason(self) -> str:
        """Why."""
        return self.arguments.reason

    def request(self, kind: str) -> ActRequest:
        """Return what ``sinks.postgres.steering`` takes."""
        return ActRequest(
            pipeline=self.pipeline,
            kind=kind,
            reason=self.reason,
            dry_run=self.dry_run,
        )

    def then(self, after: str) -> str:
        """Return the last line: that nothing was changed, or what comes now."""
        return UNCHANGED if self.dry_run else after


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One kind of act.

    Attributes:
        name: In addresses and notes.
        title: On its button.
        command: Of the command line, which does the same.
        fields: What is asked for.
        do: Does it, or tells what it would do; returns lines for people.
        role: Who may do it; greater roles may, too.
        states: Those of a pipeline under whose name the button is shown; none if it is
            beside what it is about.
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
