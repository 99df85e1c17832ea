"""Runs a peer of the benchmarks, which prints a line of JSON for each batch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tallyweir.services.dev.bench.world.bench_program import run_program
from tallyweir.services.dev.bench.world.bench_world import run_timeout_s
from tallyweir.services.dev.bench.world.driver_run import MeasuredBatch
from tallyweir.sinks.postgres.server.connection import connect

_CREATE_TABLE = """
CREATE TABLE {table} (
    event_id text, user_id bigint, page text, country text, viewed_at timestamptz,
    value double precision
)
"""


def run_peer_process(
    command: Sequence[str], environment: Mapping[str, str], *, events: int
) -> list[MeasuredBatch]:
    """Run a peer, which reads ``events``, to its end.

    Raises:
        FatalError: ``BENCH_INCOMPLETE``: the peer failed, or took too long.
    """
    lines = run_program(command, environment, timeout_s=run_timeout_s(events))
    return [MeasuredBatch(**json.loads(line)) for line in lines]


def create_peer_table(dsn: str, table: str) -> None:
    """Create the table of page views for a peer that does not create it itself.

    The login has the name of Tallyweir's schema, so Postgres would create the table
    there, next to the ledger, if the statement did not name ``public``.
    """
    with connect(dsn, application_name="bench") as connection:
        target = sql.Identifier("public", table)
        statement = sql.SQL(_CREATE_TABLE).format(table=target)
        connection.execute(statement)


def jdbc_url(dsn: str) -> str:
    """Return the JDBC URL of a database, without the login."""
    fields = conninfo_to_dict(dsn)
    return f"jdbc:postgresql://{fields['host']}:{fields['port']}/{fields['dbname']}"


def login_environment(dsn: str) -> dict[str, str]:
    """Return the login of a database as environment variables of a process."""
    fields = conninfo_to_dict(dsn)
    return {"PGUSER": str(fields["user"]), "PGPASSWORD": str(fields["password"])}
