"""Refuses a database that cannot prepare branches, before a batch fails there.

PREPARE TRANSACTION comes when all work of a batch is done, and a cause that makes it
fail then makes every batch fail. So each start asks the server, and tries PREPARE on
the real tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import psycopg
from psycopg.rows import TupleRow, dict_row

from tallyweir.sinks.postgres.branches.prepare_trial import (
    Hold,
    PrepareTrial,
    hold_nothing,
)
from tallyweir.sinks.postgres.branches.prepared_branches import owned_by_another
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.server.branch_names import branch_prefix
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId

_SQL = load_statements("tallyweir.sinks.postgres.branches", "preflight.sql")

_Connection = psycopg.Connection[TupleRow]

#: While a new driver starts, an orphan of its predecessor may hold each branch's slot.
_SLOTS_PER_BRANCH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server reports about itself."""

    is_standby: bool
    #: ``max_prepared_transactions``.
    slots: int
    #: Prepared transactions on the server that do not belong to the asking pipeline.
    slots_of_others: int
    role: str
    is_superuser: bool
    #: Process that answered; a pooler may have announced another one.
    backend: int


def check_participant(
    dsn: str, database: str, outputs: Iterable[Output], branches: int, claim: EpochClaim
) -> None:
    """Make sure that a driver can prepare its branches in a database.

    The check leaves no trace.

    Args:
        dsn: Connection string of the database.
        database: Its name in the pipeline.
        outputs: The outputs that publish there. A table that does not exist yet is
            not tried: the driver will make it without triggers.
        branches: Largest number of a batch's branches prepared there at once.
        claim: The driver's claim.

    Raises:
        ConfigurationError: ``POSTGRES_STANDBY``, ``POOLER_TRANSACTION_MODE``,
            ``PREPARE_SLOTS``, ``BRANCH_OWNER``, ``PREPARE_REFUSED``, or
            ``POSTGRES_PERMISSION``.
        RetryableError: The server does not answer.

    Crash:
        A trial may stay prepared, under a global id of the claim with sequence 0. No
        batch has this sequence, so the next driver or the resolver rolls it back.
    """
    with (
        translated(f"checking {database}"),
        connect(dsn, application_name="tallyweir preflight") as connection,
    ):
        connection.autocommit = True
        prefix = branch_prefix(claim.installation, claim.pipeline_number)
        facts = read_server(connection, prefix)
        check_primary(database, facts)
        check_pooler(dsn, database, connection, facts)
        check_slots(database, facts, branches)
        check_owner(database, connection, facts, prefix)
        try_tables(database, connection, writes_of(outputs), claim)


def check_distinct(dsns: Mapping[str, str]) -> None:
    """Refuse two names for one database.

    Otherwise the two would share the tables that each makes there, and the second would
    drop the first one's staging.

    Args:
        dsns: Connection strings of all databases of a pipeline by name, including the
            home.

    Raises:
        ConfigurationError: ``DATABASE_TWICE``.
        RetryableError: A server does not answer.
    """
    names: dict[TupleRow, str] = {}
    for name, dsn in dsns.items():
        with (
            translated(f"checking {name}"),
            connect(dsn, application_name="tallyweir preflight") as connection,
        ):
            identity = connection.execute(_SQL["identity"]).fetchone()
        assert identity is not None
        other = names.setdefault(identity, name)
        if other != name:
            raise ConfigurationError(
                "DATABASE_TWICE",
                saw=f"{other} and {name} are the same database.",
                why="Each would drop what the other stages there.",
                fix="Give one of them another connection string, or use one name. "
                "For several transactions in one database, use branches: N.",
            )


def read_server(connection: _Connection, prefix: str) -> ServerFacts:
    """Ask a server about itself.

    Args:
        connection: To the server, in autocommit.
        prefix: Common prefix of the asking pipeline's global ids.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_SQL["server_facts"], {"prefix": prefix}).fetchone()
    assert row is not None
    return ServerFacts(**row)


def check_primary(database: str, facts: ServerFacts) -> None:
    """Refuse a standby.

    Raises:
        ConfigurationError: ``POSTGRES_STANDBY``.
    """
    if facts.is_standby:
        raise ConfigurationError(
            "POSTGRES_STANDBY",
            saw=f"The server of database {database} is a standby.",
            why="A standby does not accept writes.",
            fix="Connect to the primary: name all servers in the connection string, "
            "and target_session_attrs=read-write.",
        )


def read_logins_in_ledger(connection: _Connection) -> list[str]:
    """Name the logins whose tables without a schema are in the ledger's schema."""
    return [login for (login,) in connection.execute(_SQL["logins_in_ledger"])]


def check_slots(database: str, facts: ServerFacts, branches: int) -> None:
    """Refuse a server that holds too few prepared transactions at once.

    Raises:
        ConfigurationError: ``PREPARE_SLOTS``.
    """
    needed = slots_needed(facts, branches)
    if facts.slots < needed:
        raise ConfigurationError(
            "PREPARE_SLOTS",
            saw=f"max_prepared_transactions is {facts.slots} on the server of database "
            f"{database}; {needed} are needed: {_SLOTS_PER_BRANCH} for each of "
            f"{branches} branches"
            + (
                f", and {facts.slots_of_others} that others use now."
                if facts.slots_of_others
                else "."
            ),
            why="PREPARE TRANSACTION would fail at the end of a batch, after all of "
            "its work.",
            fix=f"ALTER SYSTEM SET max_prepared_transactions = {needed}; then restart "
            "that server. Raise it on its standbys first; they need the same "
            "value.",
        )


def slots_needed(facts: ServerFacts, branches: int) -> int:
    """Tell how many prepared transactions a server must allow for some branches."""
    return _SLOTS_PER_BRANCH * branches + facts.slots_of_others if branches else 0


def check_owner(
    database: str, connection: _Connection, facts: ServerFacts, prefix: str
) -> None:
    """Refuse a role that cannot finish branches in doubt.

    Raises:
        ConfigurationError: ``BRANCH_OWNER``.
    """
    if facts.is_superuser:
        return
    row = connection.execute(_SQL["owned_by_others"], {"prefix": prefix}).fetchone()
    if row is not None:
        gid, owner = row
        raise owned_by_another(gid, database, owner=owner, role=facts.role)


def check_pooler(
    dsn: str, database: str, connection: _Connection, facts: ServerFacts
) -> None:
    """Refuse a pooler that gives each transaction another server session.

    A pooler cannot know in advance which process will serve a session. If the announced
    process was wrong, two connections with overlapping transactions show the pooler's
    mode.

    Raises:
        ConfigurationError: ``POOLER_TRANSACTION_MODE``.
    """
    if connection.info.backend_pid == facts.backend:
        return
    with connect(dsn, application_name="tallyweir preflight") as other:
        before = _backend(connection)
        # Its transaction stays open, so it keeps the session that it was given.
        others = _backend(other)
        after = _backend(connection)
    if changes_sessions(before, others, after):
        raise ConfigurationError(
            "POOLER_TRANSACTION_MODE",
            saw=f"Transactions of one connection to database {database} ran in "
            "several sessions of the server: a pooler in transaction mode sits "
            "in between.",
            why="Settings, locks and staged rows would leak from one session to "
            "another.",
            fix="Connect to the server itself, or to a pool with pool_mode=session.",
        )


def changes_sessions(before: int, others: int, after: int) -> bool:
    """Tell whether transactions of one connection change between server sessions.

    Args:
        before: The process that served a first connection's transaction.
        others: The process of a second connection's transaction, begun after that.
        after: The process of the first connection's next transaction, while the
            second's is open.
    """
    return others == before or before != after


def try_tables(
    database: str,
    connection: _Connection,
    writes: Mapping[str, bool],
    claim: EpochClaim,
    *,
    hold: Hold = hold_nothing,
) -> tuple[str, ...]:
    """Prepare a row in each table and roll it back.

    Args:
        database: Its name in the pipeline.
        connection: To the database, in autocommit.
        writes: Tables, and whether their rows are also updated.
        claim: The claim in the trials' global ids.
        hold: See ``PrepareTrial``.

    Returns:
        A sentence for each table that could not be tried, with the reason.

    Raises:
        ConfigurationError: ``PREPARE_REFUSED`` or ``POSTGRES_PERMISSION``.
    """
    attempts = itertools.count(1)
    notes = []
    for table, is_updated in writes.items():
        gid = GlobalId(
            claim=claim,
            # Batches are counted from 1, so this can never be decided.
            sequence=SequenceNumber(0),
            branch=f"{database}.0",
            attempt=next(attempts),
        )
        trial = PrepareTrial(
            connection, database, table, is_updated=is_updated, hold=hold
        )
        note = trial.run(gid)
        if note is not None:
            notes.append(note)
    return tuple(notes)


def writes_of(outputs: Iterable[Output]) -> dict[str, bool]:
    """Name the user's tables of some outputs, and whether rows are updated there."""
    writes: dict[str, bool] = {}
    for output in outputs:
        for table in output.tables:
            writes[table] = output.kind.is_updated and table == output.table
    return writes


def _backend(connection: _Connection) -> int:
    row = connection.execute(_SQL["backend"]).fetchone()
    assert row is not None
    return int(row[0])
