"""What an operator does to a pipeline: each a transaction on the home database."""

from __future__ import annotations

from sinks.postgres.steering.act import ActRequest
from sinks.postgres.steering.erase import (
    Erasure,
    ErasureRequest,
    Tombs,
    erase,
    format_receipt,
    parse_receipt,
    read_erasures,
    read_tombs,
)
from sinks.postgres.steering.pause import pause, resume

__all__ = [
    "ActRequest",
    "Erasure",
    "ErasureRequest",
    "Tombs",
    "erase",
    "format_receipt",
    "parse_receipt",
    "pause",
    "read_erasures",
    "read_tombs",
    "resume",
]
