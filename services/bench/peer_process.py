"""A peer of the benchmarks: a process that prints a line of JSON for what it read."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from services.bench.bench_world import incomplete_run, run_timeout_s
from services.bench.driver_run import MeasuredBatch

_COMPLAINT_LENGTH = 2_000

_CREATE_TABLE = """
CREATE TABLE {table} (
    event_id text, user_id bigint, page text, country text, viewed_at timestamptz,
    value double precision
)
"""


def run_peer_process(
    command: Sequence[str], environment: Mapping[str, str], *, events: int
) -> list[MeasuredBatch]:
    """Run a peer, which reads so many events, to its end.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: it failed, or took too long.
    """
    try:
        peer = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=run_timeout_s(events),
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise incomplete_run(
            f"The peer did not end in {late.timeout:.0f} s.",
            fix="Measure fewer events, or on a quieter machine.",
        ) from late
    if peer.returncode:
        complaint = peer.stderr[-_COMPLAINT_LENGTH:]
        raise incomplete_run(
            f"The peer ended with code {peer.returncode}: {complaint}",
            fix="Correct what the peer complains of.",
        )
    return [MeasuredBatch(**line) for line in map(json.loads, peer.stdout.splitlines())]


def create_peer_table(dsn: str, table: str) -> None:
    """Make the table of page views for a peer that does not make it itself."""
    with psycopg.connect(dsn) as connection:
        statement = sql.SQL(_CREATE_TABLE).format(table=sql.Identifier(table))
        connection.execute(statement)


def jdbc_url(dsn: str) -> str:
    """Write the address of a database as JDBC does, without the login."""
    fields = conninfo_to_dict(dsn)
    return f"jdbc:postgresql://{fields['host']}:{fields['port']}/{fields['dbname']}"


def login_environment(dsn: str) -> dict[str, str]:
    """Return the login of a database, for the environment of a process."""
    fields = conninfo_to_dict(dsn)
    return {"PGUSER": str(fields["user"]), "PGPASSWORD": str(fields["password"])}
