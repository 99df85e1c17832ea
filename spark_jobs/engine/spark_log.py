"""Configure the log of a process that runs Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import structlog

from tallyweir.sinks import process_log


def configure_spark_logging(
    keep: Callable[[Mapping[str, Any]], None] = lambda _line: None,
) -> None:
    """Log one line per event to stderr: readable text on a terminal, otherwise JSON.

    Args:
        keep: Also gets each line; must neither block nor raise.

    Raises:
        ConfigurationError: As ``process_log.read_log_level``.

    Py4J's log is silenced. Py4J logs the errors that it raises, a page from each of its
    threads and partly to the root logger, and would bury the lines that matter.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_named)
    process_log.configure_logging(
        partial(_pass_on, keep), structlog.processors.format_exc_info
    )


def _is_named(record: logging.LogRecord) -> bool:
    return record.name != "root"


def _pass_on(
    keep: Callable[[Mapping[str, Any]], None],
    _logger: object,
    _method: str,
    line: structlog.typing.EventDict,
) -> structlog.typing.EventDict:
    keep(line)
    return line
