"""What somebody may do from the page: a registry, each act with its dry run.

Another act is another entry of ``ACTS``: its name, its fields, and a function that
does it or, in a dry run, only tells what it would do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from psycopg import Connection
from psycopg.rows import TupleRow

from services.redrive.record_name import parse_record
from services.redrive.redriver import redrive
from sinks.postgres import steering
from sinks.postgres.steering import RedriveSelection

_UNCHANGED = "Nothing was changed yet."
_TEXT_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ActField:
    """What is asked for.

    Attributes:
        name: Of the argument.
        label: What people read.
        is_fixed: Given by the place on the page, and not typed.
    """

    name: str
    label: str
    is_fixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ActCall:
    """An act that somebody asks for.

    Attributes:
        home: A connection of its own, which notes what it does with his name.
        bootstrap: Of the broker.
        pipeline: Its name.
        arguments: By the names of the act's fields; blank if nothing was given.
        dry_run: Whether it is only told what would be done.
    """

    home: Connection[TupleRow]
    bootstrap: str
    pipeline: str
    arguments: Mapping[str, str]
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One kind of act.

    Attributes:
        name: In addresses and notes.
        title: On its button.
        states: Those of a pipeline in whose figures the button is shown.
        fields: What is asked for.
        do: Does it, or tells what it would do; returns lines for people.
    """

    name: str
    title: str
    states: tuple[str, ...]
    fields: tuple[ActField, ...]
    do: Callable[[ActCall], Sequence[str]]


def _pause(call: ActCall) -> Sequence[str]:
    paused = steering.pause(
        call.home,
        call.pipeline,
        reason=call.arguments["reason"],
        dry_run=call.dry_run,
    )
    if paused is None:
        return (
            f"{call.pipeline} can be paused: nothing of it is published then.",
            "What comes waits in Kafka until it is resumed.",
            _UNCHANGED,
        )
    return (f"{call.pipeline} is paused after batch {paused.last_sequence}.",)


def _resume(call: ActCall) -> Sequence[str]:
    ended = steering.resume(call.home, call.pipeline, dry_run=call.dry_run)
    said = f"{call.pipeline} was {ended.told()}."
    if call.dry_run:
        return said, "It would go on.", _UNCHANGED
    return said, "It goes on; a driver that waits claims an epoch."


def _redrive(call: ActCall) -> Sequence[str]:
    record = call.arguments["record"]
    report = redrive(
        call.home,
        call.bootstrap,
        RedriveSelection(
            pipeline=call.pipeline,
            group=call.arguments["group"] or None,
            record=parse_record(record) if record else None,
        ),
        reason=call.arguments["reason"],
        dry_run=call.dry_run,
    )
    return report.told(dry_run=call.dry_run)


def _rollback(call: ActCall) -> Sequence[str]:
    number = call.arguments["version"]
    changed = steering.rollback(
        call.home,
        steering.ChangeRequest(
            pipeline=call.pipeline,
            reason=call.arguments["reason"],
            dry_run=call.dry_run,
        ),
        # What is no number is no version either.
        int(number) if number.isdecimal() else 0,
    )
    plan = changed.plan
    said = [
        f"{call.pipeline}: {plan.verdict.value}",
        *(
            f"{one.subject}: {one.fate.value}, {one.why}"
            for one in plan.reckoning.fates
        ),
    ]
    if call.dry_run:
        return *said, f"It could be version {changed.version}.", _UNCHANGED
    return (
        *said,
        f"Version {changed.version} is in force after batch {changed.after_sequence}.",
        f"Start it with the file of version {number}.",
    )


_REASON = ActField(name="reason", label="Reason, for whoever asks later")

ACTS: Mapping[str, Act] = {
    act.name: act
    for act in (
        Act(
            name="pause",
            title="Pause",
            states=("RUNNING", "CAUGHT UP", "STALLED", "STOPPED", "DRAINING"),
            fields=(_REASON,),
            do=_pause,
        ),
        Act(
            name="resume",
            title="Resume",
            states=("PAUSED", "DRAINING", "DRAINED"),
            fields=(),
            do=_resume,
        ),
        Act(
            name="rollback",
            title="Roll back",
            states=("RUNNING", "CAUGHT UP", "STALLED", "STOPPED"),
            fields=(ActField(name="version", label="Version to go back to"), _REASON),
            do=_rollback,
        ),
        Act(
            name="redrive",
            title="Send again",
            # Its buttons are beside the dead letters.
            states=(),
            fields=(
                _REASON,
                *(
                    ActField(name=name, label=name, is_fixed=True)
                    for name in ("group", "record")
                ),
            ),
            do=_redrive,
        ),
    )
}


def arguments_of(act: Act, given: Mapping[str, str]) -> dict[str, str]:
    """Return the act's arguments; whatever else was given is left out."""
    return {one.name: given.get(one.name, "")[:_TEXT_MAX] for one in act.fields}


def act_json(act: Act) -> dict[str, object]:
    """Describe an act for the page."""
    return {
        "name": act.name,
        "title": act.title,
        "states": list(act.states),
        "fields": [
            {"name": one.name, "label": one.label}
            for one in act.fields
            if not one.is_fixed
        ],
    }
