"""Output of the command line: plain lines, JSON, tables, and errors in four lines.

Only a terminal gets rich output; a pipe gets plain lines. Results go to stdout,
progress and errors to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import TextIO

from tallyweir.sinks.protocol.errors import describe_error

CONFIGURATION_EXIT_CODE = 78
UNEXPECTED_EXIT_CODE = 1
UNCHANGED = "Nothing was changed (--dry-run)."


def use_rich(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal and the user allows colour."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def say(text: str) -> None:
    """Write a result line to stdout at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Write a line about progress to stderr, which parsers do not read."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def say_done(done: str, *, dry_run: bool) -> None:
    """Write what an act has done, or that its dry run changed nothing."""
    say(UNCHANGED if dry_run else done)


def say_json(value: Mapping[str, object]) -> None:
    """Write ``value`` as one line of JSON."""
    say(json.dumps(value, default=str))


def say_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table: drawn at a terminal, otherwise aligned text for ``awk``."""
    cells = [[str(cell) for cell in row] for row in rows]
    if use_rich(sys.stdout):
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns)
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)
        return
    lines = [list(columns), *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        say("  ".join(padded).rstrip())


def example(*lines: str) -> str:
    """Return an epilogue for a command's help that keeps its lines."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def render_error(error: Exception, *, debug: bool = False) -> int:
    """Print an error on stderr, and choose the exit code.

    An error of the product has ``code``, ``saw``, ``why`` and ``fix``, printed as four
    lines. Any other error is a defect and gets one line, and the stack trace with
    ``debug``.

    Returns:
        The exit code: the error's own, 78 for a contract's error without one, 1 for a
        defect.
    """
    if debug:
        note("".join(traceback.format_exception(error)).rstrip())
    if not _is_explained(error):
        message = " ".join(str(error).split())
        note(f"UNEXPECTED {type(error).__name__}: {message}".rstrip(": "))
        if not debug:
            note("  fix: run again with --debug for the stack trace")
        return UNEXPECTED_EXIT_CODE
    code, *explanation = describe_error(error)
    note(f"\x1b[1;31m{code}\x1b[0m" if use_rich(sys.stderr) else code)
    for line in explanation:
        note(line)
    return int(getattr(error, "exit_code", CONFIGURATION_EXIT_CODE))


def _is_explained(error: Exception) -> bool:
    return all(hasattr(error, field) for field in ("code", "saw", "why", "fix"))
