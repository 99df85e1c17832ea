"""Tells whose a staged row is, by the transaction that staged it.

A task attempt stages in one transaction of each database, whose id Postgres keeps with
every row (``xmin``). So rows need no column of ours, and Postgres moves them as they
are. Each transaction begins by writing its attempt into a staging table of its own, the
register, and publishing reads there which transactions those of the voters are.

The register shares the fate of the rows: one transaction writes both, one TRUNCATE
empties both, and both are UNLOGGED, so a crash of the server empties both. That is what
makes the ids safe, since a server that has crashed may give an id away once more, which
no vote could tell (``docs/adr/0007-rows-belong-to-transactions.md``).

Invariants, of one set of staging tables::

    a row of an attempt is there => the attempt is in the register
    rows whose xmin is that of an attempt in the register are that attempt's
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg.rows import TupleRow

from sinks.postgres.server.columns import Column
from sinks.postgres.server.naming import TableNames
from sinks.postgres.server.statements import load_statements
from sinks.protocol.identity import Attempt

_SQL = load_statements("sinks.postgres.staging", "staging.sql")

#: The register's name, among the staging tables.
ATTEMPTS = "attempt"

ATTEMPT_COLUMNS = (Column(name="attempt", postgres_type="bigint"),)


def register_attempt(
    connection: psycopg.Connection[TupleRow], names: TableNames, attempt: Attempt
) -> None:
    """Claim all that the transaction at hand will stage for one attempt.

    Rows that are staged under a savepoint would have another id, and be nobody's.

    Raises:
        psycopg.Error: Staging was dropped, or the server or the connection failed.
    """
    connection.execute(
        _SQL["register_attempt"].format(attempts=names.staging(ATTEMPTS)),
        {"attempt": attempt},
    )


def transactions_of(
    connection: psycopg.Connection[TupleRow],
    names: TableNames,
    attempts: Sequence[Attempt],
) -> list[str]:
    """Return the ids of the transactions that some attempts have staged in.

    They hold for the transaction at hand, whose own is among them, and not after it: a
    crash of the server may come in between.

    Raises:
        psycopg.Error: Staging was dropped, or the server or the connection failed.
    """
    found = connection.execute(
        _SQL["transactions_of"].format(attempts=names.staging(ATTEMPTS)),
        {"attempts": list(attempts)},
    )
    return [transaction for (transaction,) in found]
