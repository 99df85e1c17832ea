"""The acts of an operator on a pipeline: each a transaction on the home database.

Redriving dead letters is not an act: it only leaves notes, and disturbs no driver.
"""

from __future__ import annotations

from tallyweir.sinks.postgres.steering.accept_loss import accept_loss
from tallyweir.sinks.postgres.steering.act import ActRequest, act_as, check_reason
from tallyweir.sinks.postgres.steering.discard import Discarded, discard
from tallyweir.sinks.postgres.steering.drain import (
    DrainOutcome,
    drain,
    end_drain,
    read_drain_outcome,
)
from tallyweir.sinks.postgres.steering.erase import (
    Erasure,
    ErasureRequest,
    Tombs,
    erase,
    format_receipt,
    parse_receipt,
    read_erasures,
    read_tombs,
)
from tallyweir.sinks.postgres.steering.fork import Fork, fork
from tallyweir.sinks.postgres.steering.offset_reset import MovedPosition, reset_offsets
from tallyweir.sinks.postgres.steering.pause import pause, resume
from tallyweir.sinks.postgres.steering.redrive import (
    RecordPosition,
    RedriveSelection,
    WaitingLetter,
    begin_redrive,
    note_sent,
    read_letters,
    redriving,
)
from tallyweir.sinks.postgres.steering.restore import Restored, restore
from tallyweir.sinks.postgres.steering.scaling_act import end_scaling, set_bounds
from tallyweir.sinks.postgres.steering.shadow_diff import OutputDiff, diff
from tallyweir.sinks.postgres.steering.snapshot import (
    Snapshot,
    drop_snapshot,
    list_snapshots,
    take_snapshot,
)
from tallyweir.sinks.postgres.steering.switch import Switch, switch
from tallyweir.sinks.postgres.steering.topic_acceptance import (
    AcceptedTopic,
    accept_topics,
)
from tallyweir.sinks.postgres.steering.version_change import (
    ChangeRequest,
    list_versions,
    plan_update,
    read_version,
    rollback,
    update,
)

__all__ = [
    "AcceptedTopic",
    "ActRequest",
    "ChangeRequest",
    "Discarded",
    "DrainOutcome",
    "Erasure",
    "ErasureRequest",
    "Fork",
    "MovedPosition",
    "OutputDiff",
    "RecordPosition",
    "RedriveSelection",
    "Restored",
    "Snapshot",
    "Switch",
    "Tombs",
    "WaitingLetter",
    "accept_loss",
    "accept_topics",
    "act_as",
    "begin_redrive",
    "check_reason",
    "diff",
    "discard",
    "drain",
    "drop_snapshot",
    "end_drain",
    "end_scaling",
    "erase",
    "fork",
    "format_receipt",
    "list_snapshots",
    "list_versions",
    "note_sent",
    "parse_receipt",
    "pause",
    "plan_update",
    "read_drain_outcome",
    "read_erasures",
    "read_letters",
    "read_tombs",
    "read_version",
    "redriving",
    "reset_offsets",
    "restore",
    "resume",
    "rollback",
    "set_bounds",
    "switch",
    "take_snapshot",
    "update",
]
