"""Acts that replace what runs by another version or a fork, or discard it."""

from __future__ import annotations

from collections.abc import Sequence

from tallyweir.services.monitor.acts.act_kind import UNCHANGED, ActCall, ActKind
from tallyweir.services.monitor.acts.fields import REASON, ActField, FieldKind
from tallyweir.services.monitor.tokens import Role
from tallyweir.services.operate.steering.fork_report import (
    discard_told,
    fork_told,
    switch_told,
)
from tallyweir.sinks.postgres import steering


def _rollback(call: ActCall) -> Sequence[str]:
    number = call.arguments.number("version")
    assert number is not None, "the field is required"
    changed = steering.rollback(
        call.home,
        steering.ChangeRequest(
            pipeline=call.pipeline, reason=call.reason, dry_run=call.dry_run
        ),
        number,
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
        return *said, f"It could be version {changed.version}.", UNCHANGED
    return (
        *said,
        f"Version {changed.version} is in force after batch {changed.after_sequence}.",
        f"Start it with the file of version {number}.",
    )


def _fork(call: ActCall) -> Sequence[str]:
    new = call.arguments.text("new")
    made = steering.fork(
        call.home,
        call.request("fork"),
        new,
        empty=call.arguments.text("empty").replace(",", " ").split(),
    )
    return (
        *fork_told(made),
        call.then(f"Run it by a file of the name {new} with the tables as before."),
    )


def _switch(call: ActCall) -> Sequence[str]:
    fork = call.arguments.text("fork")
    done = steering.switch(call.home, call.request("switch"), fork)
    return (
        *switch_told(done, call.pipeline, fork),
        call.then(
            "Drivers of both end and find their tables at the next start. Back again: "
            f"switch on the page of {fork}."
        ),
    )


def _discard(call: ActCall) -> Sequence[str]:
    done = steering.discard(call.home, call.request("discard"))
    return (*discard_told(done), call.then("Its driver ends by itself."))


REPLACEMENT = (
    ActKind(
        name="rollback",
        title="Roll back",
        command="rollback",
        fields=(
            ActField(name="version", label="Version", kind=FieldKind.NUMBER),
            REASON,
        ),
        do=_rollback,
    ),
    ActKind(
        name="fork",
        title="Fork",
        command="fork",
        fields=(
            ActField(name="new", label="Name of the fork", hint="orders-2"),
            ActField(
                name="empty",
                label="Tables that begin empty, being defined otherwise",
                is_required=False,
            ),
            REASON,
        ),
        do=_fork,
    ),
    ActKind(
        name="switch",
        title="Switch",
        command="switch",
        fields=(ActField(name="fork", label="Fork", is_fixed=True), REASON),
        do=_switch,
    ),
    ActKind(
        name="discard",
        title="Discard",
        command="discard",
        role=Role.ADMIN,
        fields=(REASON,),
        do=_discard,
    ),
)
