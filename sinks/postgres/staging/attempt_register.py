"""Tells which attempt staged a row, by the transaction that staged it.

A task attempt stages in one transaction per database, and Postgres keeps the id of the
transaction with every row (``xmin``). So rows need no extra column, and Postgres moves
them as they are. Each transaction begins by writing its attempt into a separate staging
table, the register. The publish transaction looks up there which transactions are those
of the voters.

The register shares the fate of the rows: one transaction writes both, one TRUNCATE
empties both, and both are UNLOGGED, so a crash of the server empties both. This makes
the ids safe: after a crash the server may assign an id a second time, which no vote
could tell (``docs/adr/0007-rows-belong-to-transactions.md``).

Invariants of one set of staging tables::

    a row of an attempt is there => the attempt is in the register
    rows whose xmin is that of an attempt in the register are that attempt's
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.postgres.server.naming import TableNames
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.identity import Attempt

_SQL = load_statements("tallyweir.sinks.postgres.staging", "staging.sql")

#: The register's name, among the staging tables.
ATTEMPTS = "attempt"

ATTEMPT_COLUMNS = (Column(name="attempt", postgres_type="bigint"),)


def register_attempt(
    connection: psycopg.Connection[TupleRow], names: TableNames, attempt: Attempt
) -> None:
    """Register the current transaction as the one in which an attempt stages.

    Rows that are staged under a savepoint would have another id, and belong to no
    attempt.

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
    """Return the ids of the transactions in which some attempts staged.

    The id of the current transaction is among them. Use the ids only until it ends,
    because the server may crash after that.

    Raises:
        psycopg.Error: Staging was dropped, or the server or the connection failed.
    """
    found = connection.execute(
        _SQL["transactions_of"].format(attempts=names.staging(ATTEMPTS)),
        {"attempts": list(attempts)},
    )
    return [transaction for (transaction,) in found]
