"""What a connection asks of TCP, beside what it asks of Postgres."""

from __future__ import annotations

import psycopg
import pytest

from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.protocol.errors import RetryableError


def test_a_silent_server_is_given_up_after_half_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether an answer is missing or a request was not even acknowledged."""
    asked: dict[str, int] = {}

    def refuse(_dsn: str, **parameters: int) -> None:
        asked.update(parameters)
        raise psycopg.OperationalError

    monkeypatch.setattr(psycopg, "connect", refuse)
    with pytest.raises(RetryableError):
        connect("", application_name="test")
    unanswered_s = (
        asked["keepalives_idle"]
        + asked["keepalives_interval"] * asked["keepalives_count"]
    )
    assert unanswered_s == asked["tcp_user_timeout"] / 1_000 == 30
