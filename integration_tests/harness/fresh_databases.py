"""Databases beside the home, made for one test, and drivers that die over them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from integration_tests.harness.postgres_driver import PostgresDriver, execute, query
from tallyweir.sinks.faultpoints import FaultPoint, Side, arm, disarm_all
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.decisions import PublishOutcome
from tallyweir.sinks.protocol.in_doubt import GlobalId

_NO_OPTIONS = sql.SQL("")


class KilledError(BaseException):
    """The driver's process died."""


@contextmanager
def fresh_database(
    server_dsn: str, name: str, options: sql.Composable = _NO_OPTIONS
) -> Iterator[str]:
    """Make a database, and drop it with whatever is prepared in it.

    Args:
        server_dsn: The server.
        name: How its name begins.
        options: Of CREATE DATABASE.
    """
    database = f"{name}_{uuid.uuid4().hex[:12]}"
    identifier = sql.Identifier(database)
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} {}").format(identifier, options))
        # The server's role is called as the ledger's schema; as `up` does it.
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET search_path = public").format(identifier)
        )
    dsn = make_conninfo(server_dsn, dbname=database)
    yield dsn
    for gid in prepared(dsn):
        execute(dsn, f"ROLLBACK PREPARED '{gid}'")
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifier))


@contextmanager
def copied_database(server_dsn: str, dsn: str) -> Iterator[str]:
    """Make a copy of a database as it is now, as a backup restores it.

    Nobody may be connected to it.
    """
    source = str(conninfo_to_dict(dsn)["dbname"])
    name = f"copy_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(source)
            )
        )
    yield make_conninfo(server_dsn, dbname=name)
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(
            sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
        )


def prepared(dsn: str) -> list[str]:
    """List what is prepared in a database."""
    rows = query(
        dsn,
        "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() "
        "ORDER BY gid",
    )
    return [gid for (gid,) in rows]


def prepared_branches(dsn: str) -> list[GlobalId]:
    """List our own branches among what is prepared."""
    parsed = [GlobalId.parse(gid) for gid in prepared(dsn)]
    return [gid for gid in parsed if gid is not None]


def publish_numbers(driver: PostgresDriver, first: int) -> PublishOutcome:
    """Publish a batch that gives each branch of the one output a row.

    The first branch gets ``first``, the second the number after it, and so on.
    """
    (output,) = driver.layout.outputs
    branches: Sequence[str] = output.branches
    plan = driver.plan(len(branches))
    rows = driver.positioned(plan, [(first + i,) for i in range(len(branches))])
    staged = {
        f"output_0@{branch}" if branch != HOME else "output_0": [row]
        for branch, row in zip(branches, rows, strict=True)
    }
    return driver.publish(plan, driver.stage(plan, staged))


def die_publishing(
    driver: PostgresDriver, first: int, point: FaultPoint, side: Side
) -> None:
    """Let a driver die at one point of a batch; its connections are gone after."""

    def die() -> None:
        raise KilledError

    arm(point, die, side=side)
    try:
        with pytest.raises(KilledError):
            publish_numbers(driver, first)
    finally:
        disarm_all()
    close(driver)


def close(driver: PostgresDriver) -> None:
    """End every connection of a driver."""
    driver.home.close()
    for participant in driver.participants.values():
        participant.close()


def numbers(dsn: str) -> list[int]:
    """Read the result table of one database."""
    return [row[0] for row in query(dsn, "SELECT number FROM numbers ORDER BY number")]
