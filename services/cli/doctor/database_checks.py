"""The checks of ``doctor`` on the home and on every other database."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import psycopg
from psycopg.rows import TupleRow

from tallyweir.services.cli.doctor.check import Check
from tallyweir.services.process.endpoints import launcher, shown_dsn
from tallyweir.sinks.postgres.audit.status.branch_needs import (
    BranchNeeds,
    read_branch_needs,
)
from tallyweir.sinks.postgres.audit.status.branches_in_doubt import (
    HomeClaims,
    read_claims,
)
from tallyweir.sinks.postgres.branches.preflight import (
    check_distinct,
    check_owner,
    check_pooler,
    check_primary,
    check_slots,
    read_logins_in_ledger,
    read_server,
    slots_needed,
    try_tables,
)
from tallyweir.sinks.postgres.schema.migrations import check_encoding
from tallyweir.sinks.postgres.server.branch_names import HOME
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.databases import DATABASES_VARIABLE
from tallyweir.sinks.postgres.tables.foreign_code import hold_table
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

_POSTGRES_TIMEOUT_S = 5
_POSTGRES_VERSIONS = range(15, 19)
_CLOCK_SKEW_S_MAX = 2.0
_OURS = "tallyweir:"

_Connection = psycopg.Connection[TupleRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the home's pipelines need of databases; empty before the first start."""

    claims: HomeClaims | None
    branches: Sequence[BranchNeeds]

    def of(self, database: str) -> list[BranchNeeds]:
        """Return what they need of one database."""
        return [need for need in self.branches if need.database == database]


def read_needs(dsn: str) -> Needs:
    """Ask the home database which branches its pipelines have.

    If it does not answer, the checks of the home report the reason.
    """
    with (
        suppress(TallyweirError, psycopg.Error),
        _connect(dsn) as home,
    ):
        claims = read_claims(home)
        return Needs(claims=claims, branches=read_branch_needs(home, claims))
    return Needs(claims=None, branches=())


def check_database(database: str, dsn: str, needs: Needs) -> Iterator[Check]:
    """Check one database; a failed check does not stop the others.

    It tries tables with rows that it prepares and rolls back, see
    ``tallyweir.sinks.postgres.branches.prepare_trial``.
    """
    try:
        with _connect(dsn) as connection:
            yield from _DatabaseChecks(database, dsn, connection, needs).all()
    except (TallyweirError, psycopg.Error) as exc:
        saw = exc.saw if isinstance(exc, TallyweirError) else " ".join(str(exc).split())
        yield Check(
            name=_name(database, "postgres"),
            ok=False,
            saw=f"{shown_dsn(dsn)}: {saw}",
            fix=f"start that server, correct {HOME_DSN_VARIABLE} or the PG* variables, "
            f"or unset them and run {launcher()} up"
            if database == HOME
            else f"start that server, or correct {database} in {DATABASES_VARIABLE}",
        )


def check_names(dsns: Mapping[str, str], needs: Needs) -> Iterator[Check]:
    """Check that no two names in one pipeline refer to the same database.

    Args:
        dsns: Connection strings of all known databases by name, including the home.
        needs: What the home's pipelines need.
    """
    used: defaultdict[int, set[str]] = defaultdict(lambda: {HOME})
    for need in needs.branches:
        used[need.trial.pipeline_number].add(need.database)
    for names in used.values():
        try:
            check_distinct({name: dsn for name, dsn in dsns.items() if name in names})
        except ConfigurationError as error:
            yield Check(
                name="databases",
                ok=False,
                saw=f"{error.code}: {error.saw}",
                fix=error.fix,
            )
        except RetryableError:
            # The checks of that database have reported it.
            continue


def _connect(dsn: str) -> _Connection:
    return connect(
        dsn,
        application_name="tallyweir doctor",
        connect_timeout_s=_POSTGRES_TIMEOUT_S,
        autocommit=True,
    )


class _DatabaseChecks:
    def __init__(
        self, database: str, dsn: str, connection: _Connection, needs: Needs
    ) -> None:
        self._database = database
        self._dsn = dsn
        self._connection = connection
        self._needs = needs.of(database)
        # Before the first start there is no installation, so use the general prefix.
        self._prefix = needs.claims.prefix if needs.claims else _OURS
        self._facts = read_server(connection, self._prefix)

    def all(self) -> Iterator[Check]:
        """Do all checks."""
        yield self._version()
        yield self._refusal("encoding", partial(check_encoding, self._connection))
        yield self._refusal("primary", self._primary)
        yield self._search_path()
        yield self._privileges()
        yield self._durability()
        yield self._refusal("pooler", self._pooler)
        yield self._refusal("prepared", self._prepared)
        yield self._refusal("owner", self._owner)
        if not self._facts.is_standby:
            for need in self._needs:
                yield self._refusal("tables", partial(self._tables, need))
        yield self._clock()

    def _refusal(self, name: str, check: Callable[[], str]) -> Check:
        """Turn a check that a start does into a ``Check``."""
        name = _name(self._database, name)
        try:
            return Check(name=name, ok=True, saw=check())
        except TallyweirError as error:
            return Check(
                name=name, ok=False, saw=f"{error.code}: {error.saw}", fix=error.fix
            )

    def _version(self) -> Check:
        info = self._connection.info
        version = info.server_version // 10000
        supported = version in _POSTGRES_VERSIONS
        return Check(
            name=_name(self._database, "postgres"),
            ok=supported,
            saw=f"Postgres {version} at {info.host}:{info.port}/{info.dbname} "
            f"as {self._facts.role}",
            fix="" if supported else "use Postgres 15, 16, 17 or 18",
        )

    def _primary(self) -> str:
        check_primary(self._database, self._facts)
        return "takes writes"

    def _privileges(self) -> Check:
        name = self._connection.info.dbname
        may = self._value("SELECT has_database_privilege(current_database(), 'CREATE')")
        return Check(
            name=_name(self._database, "privileges"),
            ok=bool(may),
            saw=f"may {'' if may else 'not '}create schemas in {name}",
            fix=""
            if may
            else f'GRANT CREATE ON DATABASE "{name}" TO "{self._facts.role}"',
        )

    def _search_path(self) -> Check:
        name = self._connection.info.dbname
        logins = read_logins_in_ledger(self._connection)
        return Check(
            name=_name(self._database, "search_path"),
            ok=not logins,
            saw="no login's search path leads to the ledger's schema"
            if not logins
            else f"the search path of {', '.join(logins)} leads to schema tallyweir, "
            "the ledger's: tables made without a schema land there",
            fix="; ".join(
                f'ALTER ROLE "{login}" IN DATABASE "{name}" SET search_path = public'
                for login in logins
            ),
        )

    def _durability(self) -> Check:
        settings = {
            name: self._value(f"SELECT current_setting('{name}')")
            for name in ("fsync", "full_page_writes")
        }
        off = [name for name, value in settings.items() if value != "on"]
        return Check(
            name=_name(self._database, "durability"),
            ok=not off,
            saw=", ".join(f"{name} = {value}" for name, value in settings.items()),
            fix="; ".join(f"ALTER SYSTEM SET {name} = on" for name in off)
            + "; SELECT pg_reload_conf(): a lost commit would be counted twice"
            if off
            else "",
        )

    def _pooler(self) -> str:
        check_pooler(self._dsn, self._database, self._connection, self._facts)
        if self._connection.info.backend_pid == self._facts.backend:
            return "none in between"
        return "one in between, which keeps a session for each connection"

    def _prepared(self) -> str:
        branches = sum(need.branches for need in self._needs)
        facts = self._facts
        check_slots(self._database, facts, branches)
        return (
            f"max_prepared_transactions = {facts.slots}, "
            f"{slots_needed(facts, branches)} needed for {branches} branches"
        )

    def _owner(self) -> str:
        check_owner(self._database, self._connection, self._facts, self._prefix)
        return f"{self._facts.role} may finish every prepared branch of ours"

    def _tables(self, need: BranchNeeds) -> str:
        # This login may have more rights than the owner of the tables.
        notes = try_tables(
            self._database, self._connection, need.writes, need.trial, hold=hold_table
        )
        tried = f"prepared and rolled back a row in {', '.join(need.writes)}"
        return "; ".join(notes) if notes else tried

    def _clock(self) -> Check:
        before = time.time()
        theirs = self._value(
            "SELECT extract(epoch FROM clock_timestamp())::double precision"
        )
        ours = (before + time.time()) / 2
        assert isinstance(theirs, float)
        skew = abs(theirs - ours)
        fine = skew <= _CLOCK_SKEW_S_MAX
        return Check(
            name=_name(self._database, "clock"),
            ok=fine,
            saw=f"{skew:.3f} s apart from Postgres",
            fix="" if fine else "run an NTP client (chrony) on both machines",
        )

    def _value(self, query: str) -> object:
        row = self._connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


def _name(database: str, check: str) -> str:
    """Name a check; those of the home, often the only database, have no prefix."""
    return check if database == HOME else f"{database} {check}"
