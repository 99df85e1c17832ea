"""A session that lets something else happen ahead of one of its statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.rows import TupleRow


def interrupted(
    dsn: str, ahead_of: str, happens: Callable[[], object], *, options: str = ""
) -> psycopg.Connection[TupleRow]:
    """Connect; ahead of the first statement with that text something happens once.

    What happens may raise, and the session's caller gets it.
    """
    waiting = [happens]

    class Interrupted(psycopg.Cursor[TupleRow]):
        def execute(self, query: Any, *rest: Any, **more: Any) -> Any:  # noqa: ANN401
            text = query.as_string(None) if hasattr(query, "as_string") else str(query)
            if waiting and ahead_of in text:
                waiting.pop()()
            return super().execute(query, *rest, **more)

    return psycopg.connect(dsn, cursor_factory=Interrupted, options=options)
