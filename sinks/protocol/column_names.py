"""What tables call the columns that hold the values of Kafka's headers."""

from __future__ import annotations

import re

#: Before the name of a header, where a pipeline names its value as a column.
HEADER_PREFIX = "header:"

_NO_LETTER = re.compile(r"[^A-Za-z0-9_]")


def stored_name(column: str) -> str:
    """Return what a table calls a column of events: of ``header:a.b``, ``header_a_b``.

    Other columns keep their names.
    """
    if not column.startswith(HEADER_PREFIX):
        return column
    return f"header_{_NO_LETTER.sub('_', column.removeprefix(HEADER_PREFIX))}"
