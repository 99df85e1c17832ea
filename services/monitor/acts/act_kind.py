"""One kind of act, and one request for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.services.monitor.acts.fields import ActField, Arguments
from tallyweir.services.monitor.tokens import Role
from tallyweir.sinks.postgres.steering import ActRequest

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
