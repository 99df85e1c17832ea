"""A connection that is lost before one of its statements, as when its process dies."""

from __future__ import annotations

from typing import Any, ClassVar

import psycopg
from psycopg.rows import TupleRow


class DyingCursor(psycopg.Cursor[Any]):
    """The cursor after the last one that may be made takes its connection with it."""

    left: ClassVar[int] = 0

    def __init__(self, connection: psycopg.Connection[Any], **options: Any) -> None:  # noqa: ANN401
        super().__init__(connection, **options)
        DyingCursor.left -= 1
        if DyingCursor.left < 0:
            connection.pgconn.finish()


def dying_after(dsn: str, statements: int) -> psycopg.Connection[TupleRow]:
    """Connect for so many statements; one such connection at a time."""
    DyingCursor.left = statements
    return psycopg.connect(dsn, cursor_factory=DyingCursor)
