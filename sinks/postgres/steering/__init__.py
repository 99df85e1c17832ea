"""What an operator does to a pipeline: each a transaction on the home database."""

from __future__ import annotations

from sinks.postgres.steering.pause import pause, resume
from sinks.postgres.steering.scaling import end_scaling, set_bounds

__all__ = ["end_scaling", "pause", "resume", "set_bounds"]
