"""What every program here shares: how it begins, tells its error, and ends.

SIGINT may be blocked until ``stop_on_signals`` or ``end_on_interrupt`` is called, so
that a SIGINT during Python's start is not lost. The functions unblock it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import structlog

from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.pipeline import Pipeline
from tallyweir.sinks import process_log
from tallyweir.sinks.protocol.errors import TallyweirError, describe_error
from tallyweir.sinks.protocol.votes import EventCounts
from tallyweir.sinks.stop_event import StopEvent
from tallyweir.spark_jobs.engine.driver_settings import DriverSettings
from tallyweir.spark_jobs.engine.pipeline_code import load_with_code


def run_program(
    name: str,
    work: Callable[[], int],
    *,
    debug: bool = False,
    keep: Callable[[Mapping[str, Any]], None] = lambda _line: None,
) -> int:
    """Set up the log, do the work, and return the exit code.

    An error is explained on stderr, and gives the code.

    Args:
        name: What the log calls the program.
        work: The program's work, which returns its exit code.
        debug: Also log where an error was raised.
        keep: Also gets each line of the log, and the error at the end; must neither
            block nor raise.
    """
    try:
        _configure_logging(keep)
        return work()
    except (TallyweirError, ContractError) as error:
        if debug:
            structlog.get_logger().exception(f"{name} failed")
        sys.stderr.write("\n".join(describe_error(error)) + "\n")
        keep(
            {
                "level": "error",
                "event": f"{name} ended",
                "error_code": error.code,
                "saw": error.saw,
                "fix": error.fix,
            }
        )
        return error.exit_code


def read_pipeline(path: Path) -> tuple[Pipeline, DriverSettings]:
    """Load a pipeline with its code, and the settings of a process that runs it.

    Raises:
        TallyweirError, ContractError: As ``load_with_code`` and
            ``DriverSettings.from_environment``.
    """
    pipeline = load_with_code(path)
    return pipeline, DriverSettings.from_environment(
        os.environ, pipeline.wanted_databases
    )


def _configure_logging(keep: Callable[[Mapping[str, Any]], None]) -> None:
    """Log one line per event to stderr: readable text on a terminal, otherwise JSON.

    Py4J's log is silenced. Py4J logs the errors that it raises, a page from each of its
    threads and partly to the root logger, and would bury the lines that matter.

    Raises:
        ConfigurationError: As ``process_log.read_log_level``.
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


_INTERRUPTED = 128 + signal.SIGINT
_STOPPING = (
    b"\nstopping after the batch at hand; Ctrl-C again ends at once, "
    b"and the next start goes on behind what is published\n"
)


def stop_on_signals() -> StopEvent:
    """Return the event that SIGTERM and Ctrl-C set.

    A second Ctrl-C ends the process at once.

    Crash:
        A second Ctrl-C has the effect of ``kill -9``: the current batch is published or
        dropped whole.
    """
    stop = StopEvent()
    screen = _screen()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if stop.is_set():
                os._exit(_INTERRUPTED)
            if os.isatty(screen):
                # Write to the descriptor, because the stream may be in mid-line.
                os.write(screen, _STOPPING)
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    _on_interrupt(on_signal)
    return stop


def end_on_interrupt(told: str) -> None:
    """Make Ctrl-C write ``told`` and end the process at once, as ``kill -9`` does."""
    screen = _screen()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        os.write(screen, f"\n{told}\n".encode())
        os._exit(_INTERRUPTED)

    _on_interrupt(on_signal)


def _screen() -> int:
    # While a JVM starts, stderr's descriptor refers to a file.
    return os.dup(sys.stderr.fileno())


def _on_interrupt(handler: Callable[[int, FrameType | None], None]) -> None:
    signal.signal(signal.SIGINT, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


#: The exit code of a call in which all records became dead letters.
ALL_DIED = 1


def dead_told(pipeline: str, counts: EventCounts) -> str | None:
    """Say how many records are dead letters and which command shows why, or None."""
    if not counts.dead:
        return None
    shows = f"tallyweir dead-letters list {pipeline} shows why."
    if counts.is_all_dead:
        return f"NO RESULTS: all of {counts.read:,} records are dead letters; {shows}"
    return f"{counts.dead:,} of {counts.read:,} records are dead letters; {shows}"
