"""Keeps the newest warnings and errors of a driver in the home database.

This is off the commit path: a separate thread writes a few lines a second, on a
connection that it opens for them. Every line is also on the driver's standard error, so
no other work waits for these writes or fails if they fail.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow, class_row
from psycopg.types.json import Jsonb

from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch_pipeline, snapshot
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import TallyweirError

_SQL = load_statements("tallyweir.sinks.postgres.records", "driver_log.sql")

#: Number of lines kept for a pipeline.
KEPT = 3_000
#: Lines that are written in one round; further ones are left out, and counted.
ROUND_MAX = 20
ROUND_S = 1.0
#: Limit on the characters of a value.
_VALUE_MAX = 1_000
#: How long the end of a driver waits for its last lines.
_CLOSE_S = 5.0

#: Names left out of the detail: columns hold most of them, and a stack trace may quote
#: a record.
_NO_DETAIL = frozenset(
    {"event", "level", "ts", "pipeline", "sequence", "epoch", "exception", "exc_info"}
)
_LEVELS = frozenset({"warning", "error", "critical"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedLine:
    """One line of a driver's log.

    Attributes:
        number: Rises with every line.
        sequence: The batch that the line is about, or that was current then.
        detail: Its further values.
    """

    number: int
    at: datetime
    level: str
    event: str
    sequence: int
    epoch: int | None
    detail: dict[str, Any]


class DriverLog:
    """Takes lines from the driver's threads, and writes them in a thread of its own."""

    def __init__(self) -> None:
        self._waiting: deque[dict[str, Any]] = deque()
        self._left_out = 0
        self._changed = threading.Condition()
        self._ended = False
        self._thread: threading.Thread | None = None

    def take(self, line: Mapping[str, Any]) -> None:
        """Take a line, if it is a warning or worse; this never waits and never raises.

        Args:
            line: Structlog's dictionary: ``event``, ``level``, and all bound values.
        """
        if line.get("level") not in _LEVELS:
            return
        entry = _entry(line)
        with self._changed:
            if len(self._waiting) >= ROUND_MAX:
                self._left_out += 1
                return
            self._waiting.append(entry)
            self._changed.notify()

    def open(self, dsn: str, pipeline: str) -> None:
        """Begin to write to the home of a pipeline."""
        self._thread = threading.Thread(
            target=self._write, args=(dsn, pipeline), name="driver log", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Write the waiting lines and end; gives up after a few seconds."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _write(self, dsn: str, pipeline: str) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                lines = list(self._waiting)
                self._waiting.clear()
                left_out, self._left_out = self._left_out, 0
                is_last = self._ended
            if left_out and lines:
                lines[-1]["detail"]["lines_left_out"] = left_out
            if lines:
                # The lines are on standard error; maybe they report the home's failure.
                with suppress(TallyweirError, psycopg.Error):
                    _add(dsn, pipeline, lines)
            if is_last:
                return
            with self._changed:
                # One round a second limits the lines written.
                self._changed.wait_for(lambda: self._ended, ROUND_S)


def _add(dsn: str, pipeline: str, lines: list[dict[str, Any]]) -> None:
    with (
        connect(dsn, application_name="tallyweir driver log") as connection,
        translated("keeping the driver's log"),
    ):
        for line in lines:
            values = {**line, "detail": Jsonb(line["detail"]), "pipeline": pipeline}
            connection.execute(_SQL["add"], values)
        connection.execute(_SQL["prune"], {"pipeline": pipeline, "kept": KEPT})
        connection.commit()


def _entry(line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC),
        "level": line["level"],
        "event": str(line.get("event"))[:_VALUE_MAX],
        "sequence": _whole(line.get("sequence")),
        "epoch": _whole(line.get("epoch")),
        "detail": {
            name: _plain(value)
            for name, value in line.items()
            if name not in _NO_DETAIL
        },
    }


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _plain(value: object) -> object:
    """Return a value that JSON can hold, cut if it is long."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    # Postgres keeps no NUL in a text.
    return text.replace("\x00", "")[:_VALUE_MAX]


def read_driver_log(
    connection: Connection[TupleRow],
    pipeline: str,
    *,
    sequence: int | None = None,
    before: int | None = None,
    limit: int,
) -> list[LoggedLine]:
    """Read the newest lines of a pipeline's drivers, newest first.

    Args:
        connection: To the home, outside of a transaction. Nothing is written.
        pipeline: Its name.
        sequence: Only lines of this batch.
        before: Only lines before this number.
        limit: Largest number of lines.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN``.
        RetryableError: The server went away.
    """
    values = {
        "pipeline": pipeline,
        "sequence": sequence,
        "before": before,
        "limit": limit,
    }
    with snapshot(connection, doing="reading a driver's log"):
        fetch_pipeline(connection, pipeline)
        with connection.cursor(row_factory=class_row(LoggedLine)) as cursor:
            return cursor.execute(_SQL["page"], values).fetchall()
