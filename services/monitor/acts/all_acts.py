"""All acts of the page, by name.

First those on whether and how fast a pipeline flows, then those on what it has read and
kept, then those that replace what runs by another version or a fork, or discard it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from tallyweir.services.monitor.acts.act_kind import (
    AT_WORK,
    REASON,
    UNCHANGED,
    ActCall,
    ActField,
    ActKind,
    FieldKind,
)
from tallyweir.services.monitor.tokens import Role
from tallyweir.services.operate.redrive.redriver import redrive
from tallyweir.services.operate.redrive.source_records import parse_record
from tallyweir.services.operate.steering.act_reports import (
    discard_told,
    fork_told,
    switch_told,
    waiting_told,
)
from tallyweir.services.operate.steering.erasure import erase_events, erasure_told
from tallyweir.services.operate.steering.position_acts import (
    move_positions,
    move_told,
    parse_target,
    restore_snapshot,
    restored_told,
)
from tallyweir.services.operate.steering.scaling_bounds import (
    bounds_told,
    change_bounds,
    parse_bounds,
)
from tallyweir.sinks.postgres import audit, steering
from tallyweir.sinks.postgres.server.databases import parse_databases
from tallyweir.sinks.postgres.steering import RedriveSelection


def _pause(call: ActCall) -> Sequence[str]:
    paused = steering.pause(
        call.home, call.pipeline, reason=call.reason, dry_run=call.dry_run
    )
    if paused is None:
        return (
            f"{call.pipeline} can be paused: nothing of it is published then.",
            "What comes waits in Kafka until it is resumed.",
            UNCHANGED,
        )
    return (f"{call.pipeline} is paused after batch {paused.last_sequence}.",)


def _resume(call: ActCall) -> Sequence[str]:
    ended = steering.resume(call.home, call.pipeline, dry_run=call.dry_run)
    said = f"{call.pipeline} was {ended.told()}."
    if call.dry_run:
        return said, "It would go on.", UNCHANGED
    return said, "It goes on; a driver that waits claims an epoch."


def _drain(call: ActCall) -> Sequence[str]:
    closes_windows = call.arguments.text("windows") == "close"
    waiting = audit.read_waiting(
        call.home, call.pipeline, parse_databases(os.environ, {})
    )
    asked = steering.drain(
        call.home, call.request("drain"), closes_windows=closes_windows
    )
    told = waiting_told(waiting, closes_windows=closes_windows)
    if asked is None:
        return *told, f"{call.pipeline} can be drained by its driver.", UNCHANGED
    return *told, f"{call.pipeline} is {asked.told()}. Its driver ends it, then itself."


def _redrive(call: ActCall) -> Sequence[str]:
    record = call.arguments.text("record")
    report = redrive(
        call.home,
        call.bootstrap,
        RedriveSelection(
            pipeline=call.pipeline,
            group=call.arguments.text("group") or None,
            record=parse_record(record) if record else None,
        ),
        reason=call.reason,
        dry_run=call.dry_run,
    )
    return report.told(dry_run=call.dry_run)


def _scale(call: ActCall) -> Sequence[str]:
    number, off = call.arguments.number, call.arguments.is_set("off")
    bounds = change_bounds(
        call.home,
        call.pipeline,
        parse_bounds(
            executors=(number("min_executors"), number("max_executors")),
            batch_offsets=(number("min_batch"), number("max_batch")),
            off=off,
        ),
        off=off,
        dry_run=call.dry_run,
    )
    told = f"{call.pipeline}: {bounds_told(bounds)}."
    return (
        f"It would be: {told}" if call.dry_run else told,
        call.then("A driver at work follows within seconds."),
    )


def _bound(name: str, label: str, hint: str = "") -> ActField:
    return ActField(
        name=name, label=label, kind=FieldKind.NUMBER, is_required=False, hint=hint
    )


FLOW = (
    ActKind(
        name="pause",
        title="Pause",
        command="pause",
        states=AT_WORK,
        fields=(REASON,),
        do=_pause,
    ),
    ActKind(
        name="resume",
        title="Resume",
        command="resume",
        states=("PAUSED", "DRAINING", "DRAINED"),
        fields=(),
        do=_resume,
    ),
    ActKind(
        name="drain",
        title="Drain",
        command="drain",
        states=AT_WORK,
        fields=(
            ActField(
                name="windows",
                label="Open windows, and timers in event time",
                kind=FieldKind.CHOICE,
                choices=(("keep", "keep them open"), ("close", "close them")),
            ),
            REASON,
        ),
        do=_drain,
    ),
    ActKind(
        name="redrive",
        title="Send again",
        command="dead-letters redrive",
        fields=(
            REASON,
            *(
                ActField(name=name, label=name, is_required=False, is_fixed=True)
                for name in ("group", "record")
            ),
        ),
        do=_redrive,
    ),
    ActKind(
        name="scale",
        title="Set bounds",
        command="scale",
        fields=(
            _bound("min_executors", "Executors at least"),
            _bound("max_executors", "Executors at most", "Blank: as it was."),
            _bound("min_batch", "Offsets of a batch at least"),
            _bound("max_batch", "Offsets of a batch at most", "Blank: as it was."),
            ActField(
                name="off",
                label="No bounds: leave the pipeline as it is now",
                kind=FieldKind.BOOLEAN,
                is_required=False,
            ),
            REASON,
        ),
        do=_scale,
    ),
)


def _reset_offsets(call: ActCall) -> Sequence[str]:
    offsets = call.arguments.text("to_offset").replace(",", " ").split()
    moves = move_positions(
        call.home,
        call.bootstrap,
        call.pipeline,
        parse_target(call.arguments.text("to_time") or None, offsets),
        reason=call.reason,
        dry_run=call.dry_run,
    )
    return (
        *(line for move in moves for line in move_told(move)),
        call.then(
            f"{call.pipeline} goes on from there; a driver at work does so by itself."
        ),
    )


def _take_snapshot(call: ActCall) -> Sequence[str]:
    name = call.arguments.text("name")
    taken = steering.take_snapshot(
        call.home, call.pipeline, name, reason=call.reason, dry_run=call.dry_run
    )
    return (
        f"Snapshot {name} of {call.pipeline} is of batch {taken.sequence}.",
        "While it is there, the seen IDs that it needs are not forgotten.",
        call.then("No driver was fenced or had to wait."),
    )


def _drop_snapshot(call: ActCall) -> Sequence[str]:
    name = call.arguments.text("name")
    dropped = steering.drop_snapshot(
        call.home, call.pipeline, name, dry_run=call.dry_run
    )
    of = f"of batch {dropped.sequence}, taken by {dropped.taken_by}"
    if call.dry_run:
        return (f"Snapshot {name} {of}, would be gone for good.", call.then(""))
    return (f"Snapshot {name} {of}, is dropped.",)


def _restore(call: ActCall) -> Sequence[str]:
    restored = restore_snapshot(
        call.home,
        call.bootstrap,
        call.pipeline,
        call.arguments.text("name"),
        reason=call.reason,
        dry_run=call.dry_run,
    )
    return (
        *restored_told(restored),
        call.then(
            f"{call.pipeline} reads on there; a driver at work does so by itself."
        ),
    )


def _erase(call: ActCall) -> Sequence[str]:
    erasure = erase_events(
        call.home,
        call.request("erase"),
        ids=(call.arguments.text("id"),),
        source=call.arguments.text("source") or None,
    )
    return (
        *erasure_told(call.pipeline, erasure),
        call.then(
            "Keep the receipt apart from the database's backups: "
            f"tallyweir erasures {call.pipeline} --json"
        ),
    )


_SNAPSHOT = ActField(name="name", label="Snapshot", is_fixed=True)

HISTORY = (
    ActKind(
        name="offsets-reset",
        title="Move offsets",
        command="offsets reset",
        fields=(
            ActField(
                name="to_time",
                label="To the first records that Kafka got from then on, in UTC",
                kind=FieldKind.MOMENT,
                is_required=False,
            ),
            ActField(
                name="to_offset",
                label="Or to offsets, of the partitions that are to move",
                is_required=False,
                hint="flights:0=1200 flights:1=1180",
            ),
            REASON,
        ),
        do=_reset_offsets,
    ),
    ActKind(
        name="snapshot-take",
        title="Take a snapshot",
        command="snapshot take",
        fields=(
            ActField(name="name", label="Name", hint="before-v2"),
            REASON,
        ),
        do=_take_snapshot,
    ),
    ActKind(
        name="snapshot-drop",
        title="Drop",
        command="snapshot drop",
        fields=(_SNAPSHOT, REASON),
        do=_drop_snapshot,
    ),
    ActKind(
        name="restore",
        title="Restore",
        command="restore",
        fields=(_SNAPSHOT, REASON),
        do=_restore,
    ),
    ActKind(
        name="erase",
        title="Erase an event",
        command="erase --id",
        role=Role.ADMIN,
        fields=(
            ActField(name="id", label="Producer's ID"),
            ActField(
                name="source",
                label="Its ce_source, if IDs belong to sources",
                is_required=False,
            ),
            ActField(
                name="reason",
                label="Reason; it is kept for good, so leave out personal names",
            ),
        ),
        do=_erase,
    ),
)


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


ACTS: Mapping[str, ActKind] = {act.name: act for act in (*FLOW, *HISTORY, *REPLACEMENT)}
