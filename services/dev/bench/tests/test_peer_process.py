"""What a peer prints, and how it is told where to write."""

from __future__ import annotations

import sys

from tallyweir.services.dev.bench.peers.peer_runs import (
    jdbc_url,
    login_environment,
    run_peer_process,
)


def test_each_line_is_what_was_read() -> None:
    """Its output is figures and nothing else."""
    line = '{"planned_at": 1.0, "published_at": 2.5, "read": 7}'
    (batch,) = run_peer_process(
        [sys.executable, "-c", f"print('{line}')"], {}, events=1
    )
    assert (1.0, 2.5, 7) == (batch.planned_at, batch.published_at, batch.read)


def test_the_login_is_not_in_the_address() -> None:
    """Addresses are shown in lists of processes."""
    dsn = "host=127.0.0.1 port=15432 dbname=home user=ann password=secret"
    assert jdbc_url(dsn) == "jdbc:postgresql://127.0.0.1:15432/home"
    assert login_environment(dsn) == {"PGUSER": "ann", "PGPASSWORD": "secret"}
