"""What an operator does to a pipeline: each a transaction on the home database."""

from __future__ import annotations

from sinks.postgres.steering.offset_reset import MovedPosition, reset_offsets
from sinks.postgres.steering.pause import pause, resume

__all__ = ["MovedPosition", "pause", "reset_offsets", "resume"]
