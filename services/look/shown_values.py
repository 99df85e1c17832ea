"""Values as the report shows them: shortened, and without content if redacted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from tallyweir.schemas.codec import EventRecord
from tallyweir.schemas.formats.json.json_canonical import canonical_text
from tallyweir.schemas.formats.json.json_text import Number, Value

_CHARACTERS_MAX = 28
_COLUMNS_MAX = 10


def show_json(value: Value, *, redacted: bool) -> str:
    """Write a value of a document."""
    match value:
        case None:
            return ""
        case str():
            return show_text(value, redacted=redacted)
        case Number():
            return f"<{len(value.token)} digits>" if redacted else _cut(value.token)
        case bool():
            return "<boolean>" if redacted else canonical_text(value)
        case _:
            what = "<object>" if isinstance(value, dict) else "<array>"
            return what if redacted else _cut(canonical_text(value))


def show_text(text: str, *, redacted: bool) -> str:
    """Write a text on one line."""
    if redacted:
        return f"<{len(text)} characters>"
    return _cut("".join(one if one.isprintable() else "·" for one in text))


def show_column(value: object, *, redacted: bool) -> str:
    """Write a value of a column, as Postgres would show it."""
    if value is None:
        return ""
    if redacted:
        return f"<{type(value).__name__}>"
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return _cut(f"\\x{value.hex()}")
    return show_text(str(value), redacted=False)


def show_rows(
    records: Sequence[EventRecord], names: Sequence[str], *, redacted: bool
) -> tuple[list[str], list[list[str]]]:
    """Return head and cells of a table of records; the first columns if many."""
    shown = list(names[:_COLUMNS_MAX])
    cells = [
        [show_column(one.get(name), redacted=redacted) for name in shown]
        for one in records
    ]
    if len(names) > len(shown):
        shown.append(f"and {len(names) - len(shown)} more")
        cells = [[*row, "…"] for row in cells]
    return shown, cells


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS_MAX else f"{text[:_CHARACTERS_MAX]}…"
