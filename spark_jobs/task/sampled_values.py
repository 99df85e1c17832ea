"""Writes values of sampled rows as text, without hidden parts, and cuts long ones.

The text is always short, and Postgres can store it whatever the row holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa

#: Characters kept of one value. A longer value is cut, and its length is added.
VALUE_CHARS_MAX = 200
#: Characters kept of one row, names and values together; further fields are counted.
ROW_CHARS_MAX = 4_000

#: Bytes shown of a binary value; each takes two characters.
_BYTES_MAX = VALUE_CHARS_MAX // 2
_NOT_SHOWN = "(cannot be shown)"


def scalar_text(scalar: pa.Scalar, hidden: Sequence[Sequence[str]] = ()) -> str | None:
    """Write an Arrow value as text; null stays null.

    Args:
        scalar: The value.
        hidden: Paths of the parts to leave out. If there are any, the value is JSON as
            text.
    """
    try:
        value = scalar.as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        # The text is invalid, or the instant is outside of Python's calendar.
        number = getattr(scalar, "value", None)
        return str(number) if isinstance(number, int) else _NOT_SHOWN
    return json_text(value, hidden) if hidden else value_text(value)


def value_text(value: object) -> str | None:
    """Write a value as text, and cut it."""
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        shown = bytes(value[:_BYTES_MAX]).hex()
        whole = f"\\x{shown}"
        return whole if len(value) <= _BYTES_MAX else f"{whole}… ({len(value)} bytes)"
    return _cut(_plain(value))


def json_text(text: str | None, hidden: Iterable[Sequence[str]]) -> str | None:
    """Write a nested value, which is JSON as text, without some of its parts.

    A path passes through lists and maps as if they were not there. A part is left out
    wherever the names of a path come one below the other, at any depth.

    Args:
        text: JSON; nothing is shown of text that is not JSON.
        hidden: The paths of the parts to leave out.
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
        for path in hidden:
            value = _without(value, tuple(path))
    except (ValueError, RecursionError):
        return _NOT_SHOWN
    return value_text(json.dumps(value, ensure_ascii=False))


def fit(
    fields: Iterable[tuple[str, str | None]],
) -> tuple[tuple[tuple[str, str | None], ...], int]:
    """Return the fields that a sampled row has room for, and count those left out."""
    kept: list[tuple[str, str | None]] = []
    room, left_out = ROW_CHARS_MAX, 0
    for name, text in fields:
        room -= len(name) + len(text or "")
        if room < 0:
            left_out += 1
        else:
            kept.append((name, text))
    return tuple(kept), left_out


def _without(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, list):
        return [_without(one, path) for one in value]
    if not isinstance(value, dict):
        return value
    name, *below = path
    return {
        key: _without(_without(one, tuple(below)) if key == name else one, path)
        for key, one in value.items()
        if key != name or below
    }


def _plain(value: object) -> str:
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, datetime | date):
        text = value.isoformat()
    elif isinstance(value, dict | list | tuple):
        text = json.dumps(value, default=str, ensure_ascii=False)
    else:
        text = str(value)
    # Postgres stores neither a NUL nor half of a surrogate pair.
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _cut(text: str) -> str:
    if len(text) <= VALUE_CHARS_MAX:
        return text
    return f"{text[:VALUE_CHARS_MAX]}… ({len(text)} characters)"
