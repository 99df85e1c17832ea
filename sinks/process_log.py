"""How a process logs: drivers and services in the same way, at the same variable."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping

import structlog

from tallyweir.sinks.protocol.errors import ConfigurationError

LOG_LEVEL_VARIABLE = "TALLYWEIR_LOG_LEVEL"
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_DEFAULT = logging.INFO


def configure_logging(*processors: structlog.typing.Processor) -> None:
    """One line an event on stderr: for people on a terminal, else as JSON.

    Args:
        processors: See each line before it is written, in this order.

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
            *processors,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def read_log_level(environment: Mapping[str, str]) -> int:
    """Return the lowest level that is logged, as ``logging`` numbers it.

    The default is ``info``, also if the variable is empty.

    Raises:
        ConfigurationError: ``SETTING_INVALID``. A misspelt level is an error, so that
            the operator does not wait for lines that never come.
    """
    text = environment.get(LOG_LEVEL_VARIABLE)
    if not text:
        return _DEFAULT
    level = _LEVELS.get(text.lower())
    if level is None:
        raise ConfigurationError(
            "SETTING_INVALID",
            saw=f"{LOG_LEVEL_VARIABLE} is {text!r}.",
            why=f"The levels are {', '.join(_LEVELS)}.",
            fix="Correct it, or unset it to log at level info.",
        )
    return level
