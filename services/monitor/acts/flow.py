"""Acts on whether and how fast a pipeline flows: pause, resume, redrive, scale."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tallyweir.services.monitor.acts.act_kind import (
    AT_WORK,
    UNCHANGED,
    ActCall,
    ActKind,
)
from tallyweir.services.monitor.acts.fields import REASON, ActField, FieldKind
from tallyweir.services.operate.redrive.record_name import parse_record
from tallyweir.services.operate.redrive.redriver import redrive
from tallyweir.services.operate.steering.scaling_bounds import (
    bounds_told,
    change_bounds,
    parse_bounds,
)
from tallyweir.services.operate.steering.waiting_report import waiting_told
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
