"""The acts of an operator on a pipeline: each a transaction on the home database.

Redriving dead letters is not an act: it only leaves notes, and disturbs no driver.
"""

from __future__ import annotations

from tallyweir.sinks.postgres.steering.accept_loss import accept_loss as accept_loss
from tallyweir.sinks.postgres.steering.act import (
    ActRequest as ActRequest,
    act_as as act_as,
    check_reason as check_reason,
)
from tallyweir.sinks.postgres.steering.discard import (
    Discarded as Discarded,
    discard as discard,
)
from tallyweir.sinks.postgres.steering.drain import (
    DrainOutcome as DrainOutcome,
    drain as drain,
    end_drain as end_drain,
    read_drain_outcome as read_drain_outcome,
)
from tallyweir.sinks.postgres.steering.erase import (
    Erasure as Erasure,
    ErasureRequest as ErasureRequest,
    Tombs as Tombs,
    erase as erase,
    format_receipt as format_receipt,
    parse_receipt as parse_receipt,
    read_erasures as read_erasures,
    read_tombs as read_tombs,
)
from tallyweir.sinks.postgres.steering.fork import Fork as Fork, fork as fork
from tallyweir.sinks.postgres.steering.offset_reset import (
    MovedPosition as MovedPosition,
    reset_offsets as reset_offsets,
)
from tallyweir.sinks.postgres.steering.pause import pause as pause, resume as resume
from tallyweir.sinks.postgres.steering.redrive import (
    RecordPosition as RecordPosition,
    RedriveSelection as RedriveSelection,
    WaitingLetter as WaitingLetter,
    begin_redrive as begin_redrive,
    note_sent as note_sent,
    read_letters as read_letters,
    redriving as redriving,
)
from tallyweir.sinks.postgres.steering.restore import (
    Restored as Restored,
    restore as restore,
)
from tallyweir.sinks.postgres.steering.scaling_act import (
    end_scaling as end_scaling,
    set_bounds as set_bounds,
)
from tallyweir.sinks.postgres.steering.shadow_diff import (
    OutputDiff as OutputDiff,
    diff as diff,
)
from tallyweir.sinks.postgres.steering.snapshot import (
    Snapshot as Snapshot,
    drop_snapshot as drop_snapshot,
    list_snapshots as list_snapshots,
    take_snapshot as take_snapshot,
)
from tallyweir.sinks.postgres.steering.switch import Switch as Switch, switch as switch
from tallyweir.sinks.postgres.steering.topic_acceptance import (
    AcceptedTopic as AcceptedTopic,
    accept_topics as accept_topics,
)
from tallyweir.sinks.postgres.steering.version_change import (
    ChangeRequest as ChangeRequest,
    list_versions as list_versions,
    plan_update as plan_update,
    read_version as read_version,
    rollback as rollback,
    update as update,
)
