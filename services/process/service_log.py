"""Configure the log, in the same way for all services."""

from __future__ import annotations

import os
import sys

import structlog

from sinks.log_level import read_log_level


def configure_logging() -> None:
    """Log one line per event to stderr: readable text on a terminal, otherwise JSON.

    Raises:
        ConfigurationError: As ``read_log_level``.
    """
    level = read_log_level(os.environ)
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
