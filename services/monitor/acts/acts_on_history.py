"""Acts on what a pipeline has read and kept: offsets, snapshots, events."""

from __future__ import annotations

from collections.abc import Sequence

from tallyweir.services.monitor.acts.act_kind import ActCall, ActKind
from tallyweir.services.monitor.acts.fields import REASON, ActField, FieldKind
from tallyweir.services.monitor.tokens import Role
from tallyweir.services.operate.steering.erasure import erase_events, erasure_told
from tallyweir.services.operate.steering.position_move import (
    move_positions,
    move_told,
    parse_target,
)
from tallyweir.services.operate.steering.snapshot_restore import (
    restore_snapshot,
    restored_told,
)
from tallyweir.sinks.postgres import steering


def _reset(call: ActCall) -> Sequence[str]:
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


def _take(call: ActCall) -> Sequence[str]:
    name = call.arguments.text("name")
    taken = steering.take_snapshot(
        call.home, call.pipeline, name, reason=call.reason, dry_run=call.dry_run
    )
    return (
        f"Snapshot {name} of {call.pipeline} is of batch {taken.sequence}.",
        "While it is there, the seen IDs that it needs are not forgotten.",
        call.then("No driver was fenced or had to wait."),
    )


def _drop(call: ActCall) -> Sequence[str]:
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
        do=_reset,
    ),
    ActKind(
        name="snapshot-take",
        title="Take a snapshot",
        command="snapshot take",
        fields=(
            ActField(name="name", label="Name", hint="before-v2"),
            REASON,
        ),
        do=_take,
    ),
    ActKind(
        name="snapshot-drop",
        title="Drop",
        command="snapshot drop",
        fields=(_SNAPSHOT, REASON),
        do=_drop,
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
