"""What an operator does to a pipeline: each a transaction on the home database.

Sending dead letters again is none: it leaves notes, and is in nobody's way.
"""

from __future__ import annotations

from sinks.postgres.steering.actor import act_as
from sinks.postgres.steering.pause import pause, resume
from sinks.postgres.steering.redrive import (
    RecordPosition,
    RedriveSelection,
    WaitingLetter,
    begin_redrive,
    check_reason,
    note_sent,
    read_letters,
    redriving,
)
from sinks.postgres.steering.scaling import end_scaling, set_bounds

__all__ = [
    "RecordPosition",
    "RedriveSelection",
    "WaitingLetter",
    "act_as",
    "begin_redrive",
    "check_reason",
    "end_scaling",
    "note_sent",
    "pause",
    "read_letters",
    "redriving",
    "resume",
    "set_bounds",
]
