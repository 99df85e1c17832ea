"""How much a process logs: drivers and services read it from the same variable."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sinks.protocol.errors import ConfigurationError

LOG_LEVEL_VARIABLE = "TALLYWEIR_LOG_LEVEL"
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_DEFAULT = logging.INFO


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
            why=f"There are {', '.join(_LEVELS)}.",
            fix="Unset it for info, or correct it.",
        )
    return level
