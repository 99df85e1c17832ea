"""Refuses a database that cannot prepare branches, before a batch fails there.

PREPARE TRANSACTION comes when all work of a batch is done, and a cause that makes it
fail then makes every batch fail. So each start asks the server, and tries PREPARE on
the real tables.

Postgres refuses to prepare a transaction that sent a NOTIFY, touched a temporary table
or opened a cursor WITH HOLD. A user's trigger may do any of these, and only a written
row shows it.
"""

from __future__ import annotations

import itertools
import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow, dict_row

from tallyweir.sinks.postgres.branches.prepared_branches import owned_by_another
from tallyweir.sinks.postgres.outputs.output import Output
from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import branch_prefix
from tallyweir.sinks.postgres.server.pooled_endpoints import find_pooled_endpoint
from tallyweir.sinks.postgres.server.sqlstate import (
    is_row_rejection,
    translate,
    translated,
)
from tallyweir.sinks.postgres.server.statements import fetch_row, load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.identity import Sequence as SequenceNumber
from tallyweir.sinks.protocol.in_doubt import EpochClaim, GlobalId

_SQL = load_statements("tallyweir.sinks.postgres.branches", "preflight.sql")
_BRANCH = load_statements("tallyweir.sinks.postgres.branches", "participant.sql")

_Connection = psycopg.Connection[TupleRow]

#: Holds a table; takes a connection, the database's name and the table's.
Hold = Callable[[_Connection, str, str], None]

#: A value for each category of types in ``pg_type``, as text that Postgres reads.
_BY_CATEGORY = {
    "A": "{}",
    "B": "true",
    "D": "now",
    "I": "127.0.0.1",
    "N": "1",
    "R": "empty",
    "S": "t",
    "T": "1 second",
}
_BY_TYPE = {"bytea": "", "json": "{}", "jsonb": "{}", "xml": "<t/>"}
_SMALLINT_MAX = 32_767


def hold_nothing(_connection: _Connection, _database: str, _table: str) -> None:
    """Accept any table, as a driver does, which writes to it anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FillableColumn:
    """A column that a made-up row may have a value for."""

    name: str
    is_required: bool
    #: Category of its type, as in ``pg_type.typcategory``.
    category: str
    #: Name of its type.
    kind: str
    #: First label, if the type is an enumeration.
    first_label: str | None

    @property
    def plain(self) -> str | None:
        """A value that most constraints accept; None if none is known for the type."""
        if self.kind == "uuid":
            return str(uuid.uuid4())
        of_category = self.first_label or _BY_CATEGORY.get(self.category)
        return _BY_TYPE.get(self.kind, of_category)

    @property
    def rare(self) -> str | None:
        """A value that hardly any row has, for unique columns."""
        match self.category:
            case "N":
                return str(1 + secrets.randbelow(_SMALLINT_MAX))
            case "S":
                return f"tallyweir {secrets.token_hex(8)}"
            case _:
                return self.plain


class PrepareTrial:
    """One row in one table, prepared and rolled back; it is never visible.

    Sequences that the table draws from move on, as with any transaction that is rolled
    back.

    Args:
        connection: In autocommit.
        database: Its name in the pipeline.
        table: The user's table.
        is_updated: Whether the pipeline updates rows of the table.
        hold: Called before a row is tried; refuses a table by ``ConfigurationError``.
    """

    def __init__(
        self,
        connection: _Connection,
        database: str,
        table: str,
        *,
        is_updated: bool,
        hold: Hold = hold_nothing,
    ) -> None:
        self._connection = connection
        self._database = database
        self._table = table
        self._identifier = table_identifier(table)
        self._is_updated = is_updated
        self._hold = hold
        self._values = {
            "table": self._identifier.as_string(connection),
            "is_updated": is_updated,
        }

    def run(self, gid: GlobalId) -> str | None:
        """Run the trial, if the table exists.

        Args:
            gid: The global id for the trial; no batch may ever decide it.

        Returns:
            Why the table could not be tried; None if it was, or if it does not exist.

        Raises:
            ConfigurationError: ``PREPARE_REFUSED``, or ``POSTGRES_PERMISSION``.
            TallyweirError: As ``translate`` finds; a batch would fail in the same way.

        Crash:
            The trial may stay prepared; see ``check_participant``.
        """
        facts = self._connection.execute(_SQL["table_facts"], self._values).fetchone()
        if facts is None:
            return None
        is_row_secured, is_permitted = facts
        if not is_permitted:
            raise self._not_permitted()
        try:
            self._connection.execute("BEGIN")
            self._connection.execute(_SQL["trial_settings"])
            refusal = self._refuse_to_hold() or self._write_any(
                is_row_secured=is_row_secured
            )
            if refusal is None:
                self._prepare_and_roll_back(gid)
        except psycopg.errors.LockNotAvailable:
            refusal = "another transaction has a lock on it"
        except psycopg.Error as error:
            doing = f"trying a row in {self._table} of {self._database}"
            raise translate(error, doing=doing) from error
        finally:
            if not self._connection.closed:
                self._connection.rollback()
        return None if refusal is None else f"{self._table} not tried: {refusal}"

    def _refuse_to_hold(self) -> str | None:
        try:
            self._hold(self._connection, self._database, self._table)
        except ConfigurationError as error:
            return error.saw.removesuffix(".")
        except psycopg.errors.InsufficientPrivilege:
            # Appending needs no right to lock the table against alterations.
            return "this login may insert into it, but may not lock it"
        return None

    def _write_any(self, *, is_row_secured: bool) -> str | None:
        """Write a row that the table accepts; otherwise return the first refusal."""
        refusal = None
        columns = self._read_columns()
        for statement, values in self._rows(columns):
            try:
                with self._connection.transaction():
                    if self._write(statement, values, columns[0]):
                        return None
            except psycopg.Error as error:
                # A policy may refuse rows, and an appending role may not read.
                is_refused = is_row_rejection(error) or (
                    isinstance(error, psycopg.errors.InsufficientPrivilege)
                    and (is_row_secured or not values)
                )
                if not is_refused:
                    raise
                refusal = refusal or error.diag.message_primary
        return refusal or "it took no row"

    def _read_columns(self) -> list[FillableColumn]:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(_SQL["fillable_columns"], self._values)
            return [FillableColumn(**row) for row in cursor]

    def _rows(
        self, columns: Sequence[FillableColumn]
    ) -> Iterator[tuple[sql.Composed, list[str]]]:
        """Yield rows to try: made-up ones, then a copy of an existing row.

        The first has a value in every column, so that conditional triggers run.
        """
        rare = [(c.name, c.rare) for c in columns]
        plain = [(c.name, c.plain) for c in columns]
        least = [(c.name, c.plain) for c in columns if c.is_required]
        for row in (rare, plain, least):
            filled = {name: value for name, value in row if value is not None}
            statement = _SQL["insert_made_up" if filled else "insert_nothing"].format(
                table=self._identifier,
                columns=sql.SQL(", ").join(map(sql.Identifier, filled)),
                values=sql.SQL(", ").join([sql.Placeholder()] * len(filled)),
            )
            yield statement, list(filled.values())
        if columns:
            names = sql.SQL(", ").join(sql.Identifier(c.name) for c in columns)
            copy = _SQL["insert_copy"].format(table=self._identifier, columns=names)
            yield copy, []

    def _write(
        self, statement: sql.Composed, values: Sequence[str], first: FillableColumn
    ) -> bool:
        """Write one row as the pipeline would; False if there was no row to write."""
        if self._is_updated:
            statement = sql.SQL(" ").join([statement, _SQL["returning_place"]])
        written = self._connection.execute(statement, values)
        if written.rowcount != 1:
            return False
        if self._is_updated:
            place = written.fetchone()
            assert place is not None
            update = _SQL["update_tried"].format(
                table=self._identifier, column=sql.Identifier(first.name)
            )
            self._connection.execute(update, {"tableoid": place[0], "ctid": place[1]})
        self._connection.execute(_SQL["check_constraints"])
        return True

    def _prepare_and_roll_back(self, gid: GlobalId) -> None:
        name = sql.Literal(str(gid))
        try:
            prepared = self._connection.execute(_BRANCH["prepare"].format(gid=name))
        except psycopg.errors.FeatureNotSupported as error:
            raise self._refused(error.diag) from error
        assert prepared.statusmessage == "PREPARE TRANSACTION", "nothing had failed"
        # The resolver may have been faster: a trial is an orphan from the start.
        with suppress(psycopg.errors.UndefinedObject):
            self._connection.execute(_BRANCH["roll_back_prepared"].format(gid=name))

    def _refused(self, cause: psycopg.errors.Diagnostic) -> ConfigurationError:
        return ConfigurationError(
            "PREPARE_REFUSED",
            saw="Postgres does not prepare a transaction that writes to table "
            f"{self._table} in database {self._database}: {cause.message_primary}.",
            why="A trigger or default of the table does something that a prepared "
            "transaction must not do: NOTIFY, LISTEN, a temporary table, a "
            "cursor WITH HOLD, or a session lock. Every batch would fail like "
            "this.",
            fix=rf"Find it with \d {self._table} in psql, and drop or change it. An "
            "output in the home database may keep it: nothing is prepared there.",
        )

    def _not_permitted(self) -> ConfigurationError:
        privileges = "INSERT, SELECT, UPDATE" if self._is_updated else "INSERT"
        (name,) = fetch_row(self._connection, _SQL["role"])
        role = sql.Identifier(name).as_string(self._connection)
        table = self._values["table"]
        return ConfigurationError(
            "POSTGRES_PERMISSION",
            saw=f"The role {role} may not {privileges} on table {table} in database "
            f"{self._database}.",
            why="The pipeline needs these privileges.",
            fix=f"GRANT {privileges} ON {table} TO {role};",
        )


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
    process was wrong, or the endpoint is known for a pooler, two connections with
    overlapping transactions show the pooler's mode.

    Raises:
        ConfigurationError: ``POOLER_TRANSACTION_MODE``.
    """
    info = connection.info
    known = find_pooled_endpoint(info.host, info.port, info.user)
    if info.backend_pid == facts.backend and known is None:
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
            fix="Connect to the server itself (behind PgBouncer, mostly port 5432 "
            "where this is 6432), or to a pool with pool_mode=session."
            if known is None
            else f"This is {known.pooler}. Connect to {known.direct}.",
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
    return int(fetch_row(connection, _SQL["backend"])[0])
