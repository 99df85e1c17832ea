"""A session that the server ends ahead of one of its statements."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import TupleRow


def killing_cursor(dsn: str, statements: int) -> type[psycopg.Cursor[TupleRow]]:
    """Make cursors of a session that ends after so many statements."""
    left = statements

    class Killing(psycopg.Cursor[TupleRow]):
        def execute(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            nonlocal left
            if left == 0:
                with psycopg.connect(dsn, autocommit=True) as killer:
                    killer.execute(
                        "SELECT pg_terminate_backend(%s, 5000)",
                        (self.connection.info.backend_pid,),
                    )
            left -= 1
            return super().execute(*arguments, **options)

    return Killing
