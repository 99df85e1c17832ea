"""The checks of ``doctor``: each reports what it saw and, if bad, the exact fix.

They start no embedded server, touch no data and send no notification.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psycopg
from confluent_kafka import KafkaException
from psycopg.rows import TupleRow

from tallyweir.services.alerts.channels import check_reachable, make_channels
from tallyweir.services.alerts.rules_file import RulesFile, read_rules
from tallyweir.services.kafka.clients import admin_client
from tallyweir.services.local.embedded.jars import JAR_LOCK, locked_jars, verify_jar
from tallyweir.services.local.embedded.java import find_java, java_version
from tallyweir.services.local.embedded.servers import embedded_kafka, embedded_postgres
from tallyweir.services.local.embedded.state_directory import (
    is_checkout,
    state_directory,
)
from tallyweir.services.local.embedded.virtual_environment import (
    RUNTIME_LOCK,
    is_installed,
)
from tallyweir.services.process.endpoints import (
    KAFKA_VARIABLE,
    given_home_dsn,
    given_kafka_bootstrap,
    launcher,
    shown_dsn,
)
from tallyweir.sinks.postgres.audit import read_overview
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
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.databases import (
    DATABASES_VARIABLE,
    parse_databases,
)
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.pooled_endpoints import find_pooled_endpoint
from tallyweir.sinks.postgres.tables.foreign_code import hold_table
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    RetryableError,
    TallyweirError,
)
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

_KAFKA_TIMEOUT_S = 5.0
_DISK_FREE_BYTES_MIN = 2 * 1024**3
_BYTES_PER_GIB = 1024**3


def all_checks(alert_rules: Path | None) -> Iterator[Check]:
    """Do all checks, cheapest first; a failed check does not stop the others."""
    # Only a checkout has an environment of its own.
    locks = (_lock,) if is_checkout() else ()
    for check in (_python, *locks, _java, _jars, _disk):
        yield _guarded(check.__name__.strip("_"), check)
    yield _guarded("kafka", _kafka)
    yield from _postgres()
    if alert_rules is not None:
        yield from check_rules(alert_rules, _home_dsn())


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except TallyweirError as error:
        return Check(name=name, ok=False, saw=error.saw, fix=error.fix)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    # The launcher has already refused an older Python.
    return Check(name="python", ok=True, saw=f"{version}, {sys.executable}")


def _lock() -> Check:
    fresh = is_installed(RUNTIME_LOCK)
    return Check(
        name="lock",
        ok=fresh,
        saw=f".venv {'matches' if fresh else 'does not match'} {RUNTIME_LOCK}",
        fix="" if fresh else "remove .venv; the next command creates it",
    )


def _java() -> Check:
    java = find_java()
    return Check(name="java", ok=True, saw=f"{java_version(java)}, {java}")


def _jars() -> Check:
    directory = state_directory() / "jars"
    jars = [jar for part in ("spark", "broker") for jar in locked_jars(part)]
    there = [jar for jar in jars if (directory / jar.file_name).exists()]
    for jar in there:
        verify_jar(jar, directory / jar.file_name)
    missing = len(jars) - len(there)
    saw = f"{len(there)} of {len(jars)} match {JAR_LOCK.name}"
    if missing:
        saw += f"; {missing} will be fetched on first use"
    return Check(name="jars", ok=True, saw=saw)


def _disk() -> Check:
    free = shutil.disk_usage(state_directory()).free
    enough = free >= _DISK_FREE_BYTES_MIN
    return Check(
        name="disk",
        ok=enough,
        saw=f"{free / _BYTES_PER_GIB:.1f} GiB free for {state_directory()}",
        fix="" if enough else "free 2 GiB, or set TALLYWEIR_STATE_DIR to another disk",
    )


def _kafka() -> Check:
    bootstrap = given_kafka_bootstrap()
    kind = KAFKA_VARIABLE
    if bootstrap is None:
        broker = embedded_kafka()
        if not broker.is_running():
            return _starts_on_first_use("kafka", KAFKA_VARIABLE)
        bootstrap, kind = broker.bootstrap, f"embedded Kafka {_broker_version()}"
    client = admin_client(bootstrap)
    try:
        cluster = client.list_topics(timeout=_KAFKA_TIMEOUT_S)
    except KafkaException as exc:
        return Check(
            name="kafka",
            ok=False,
            saw=f"{bootstrap} ({kind}) does not answer: {exc.args[0].str()}",
            fix=f"start that broker, correct {KAFKA_VARIABLE}, or unset it and run "
            f"{launcher()} up",
        )
    saw = f"{bootstrap} ({kind}), {len(cluster.brokers)} broker(s)"
    return Check(name="kafka", ok=True, saw=f"{saw}, cluster {cluster.cluster_id}")


def _broker_version() -> str:
    return next(j.version for j in locked_jars("broker") if j.artifact == "kafka_2.13")


def _starts_on_first_use(name: str, variable: str) -> Check:
    saw = f"{variable} is not set; the embedded one starts on first use"
    return Check(name=name, ok=True, saw=saw)


def _home_dsn() -> str | None:
    """Return the home's connection string; None for a stopped embedded server."""
    given = given_home_dsn()
    if given is not None:
        return given
    server = embedded_postgres()
    return server.dsn if server.is_running() else None


def _postgres() -> Iterator[Check]:
    dsn = _home_dsn()
    if dsn is None:
        yield _starts_on_first_use("postgres", HOME_DSN_VARIABLE)
        return
    needs = read_needs(dsn)
    yield from check_database(HOME, dsn, needs)
    try:
        others = parse_databases(os.environ, {})
    except TallyweirError as error:
        yield Check(name="databases", ok=False, saw=error.saw, fix=error.fix)
        return
    for name, other in others.items():
        yield from check_database(name, other, needs)
    yield from check_names({HOME: dsn, **others}, needs)
    for name in sorted({need.database for need in needs.branches} - {HOME, *others}):
        yield Check(
            name=name,
            ok=True,
            saw="a pipeline publishes there; not checked, because "
            f"{DATABASES_VARIABLE} does not name it",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: Name of the checked thing.
        ok: Tallyweir can work with it.
        saw: What the check found; never a secret.
        fix: What to do when it is not ok, or when it is ok with a warning.
    """

    name: str
    ok: bool
    saw: str
    fix: str = ""

    @property
    def is_warning(self) -> bool:
        """Whether it is ok, but the operator may have to do something."""
        return self.ok and bool(self.fix)


def check_rules(path: Path, home_dsn: str | None) -> Iterator[Check]:
    """Check the file, its channels, and the pipelines that the rules name.

    Args:
        path: Path of the rules file.
        home_dsn: Connection string of the home that has the pipelines; None for no
            home.
    """
    try:
        asked = read_rules(path)
        channels = make_channels(asked.channels, os.environ)
    except TallyweirError as error:
        yield Check(name="alert rules", ok=False, saw=error.saw, fix=error.fix)
        return
    saw = f"{path}: {len(asked.rules)} rules, {len(channels)} channels"
    yield Check(name="alert rules", ok=True, saw=saw)
    for name, channel in channels.items():
        try:
            check_reachable(name, channel.address)
        except TallyweirError as error:
            # The host of the service may reach it, or this host may later.
            yield Check(name="alert channel", ok=True, saw=error.saw, fix=error.fix)
        else:
            yield Check(name="alert channel", ok=True, saw=f"{name} can be connected")
    if home_dsn is not None:
        yield from _check_pipelines(asked, home_dsn)


def _check_pipelines(asked: RulesFile, home_dsn: str) -> Iterator[Check]:
    try:
        with connect(home_dsn, application_name="tallyweir doctor") as home:
            known = [one.pipeline for one in read_overview(home)]
    except TallyweirError as error:
        # Other checks report problems of the home.
        yield Check(name="alert pipelines", ok=True, saw=error.saw, fix=error.fix)
        return
    for name, rule in asked.rules.items():
        if not any(map(rule.is_about, known)):
            yield Check(
                name="alert pipelines",
                ok=True,
                saw=f"the rule {name} names {rule.pipelines!r}, but the home has "
                f"only {', '.join(known) or 'no pipeline'}",
                fix="correct the rule's pipelines, or start the pipeline",
            )


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
    ``tallyweir.sinks.postgres.branches.preflight``.
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
        yield self._pooler()
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

    def _pooler(self) -> Check:
        info = self._connection.info
        known = find_pooled_endpoint(info.host, info.port, info.user)
        found = self._refusal("pooler", self._pooler_mode)
        if known is None or not found.ok:
            return found
        return replace(
            found,
            saw=f"this is {known.pooler}; it keeps a session for each connection",
            fix=f"connect to {known.direct}: a pooler limits connections, and its mode "
            "may change",
        )

    def _pooler_mode(self) -> str:
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
