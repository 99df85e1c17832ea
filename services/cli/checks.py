"""What ``doctor`` looks at: each check says what it saw and, if bad, the exact fix.

An embedded server that does not run is not started, and no data is touched.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from psycopg.rows import TupleRow

from services.embedded.jars import JAR_LOCK, locked_jars, verify_jar
from services.embedded.java import find_java, java_version
from services.embedded.servers import embedded_kafka, embedded_postgres
from services.embedded.state_directory import state_directory
from services.embedded.virtual_environment import RUNTIME_LOCK, is_installed
from services.endpoints import (
    HOME_DSN_VARIABLE,
    KAFKA_VARIABLE,
    given_home_dsn,
    given_kafka_bootstrap,
    launcher,
    shown_dsn,
)
from sinks.protocol.errors import TallyweirError

_KAFKA_TIMEOUT_S = 5.0
_POSTGRES_TIMEOUT_S = 5
_POSTGRES_VERSIONS = range(15, 19)
_CLOCK_SKEW_S_MAX = 2.0
_DISK_FREE_BYTES_MIN = 2 * 1024**3
_BYTES_PER_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The outcome of one look.

    Attributes:
        name: What was looked at.
        ok: Whether Tallyweir can work with it.
        saw: What was found; never a secret.
        fix: What to do when it is not ok, else empty.
    """

    name: str
    ok: bool
    saw: str
    fix: str = ""


def all_checks() -> Iterator[Check]:
    """Look at everything, cheapest first; a failed check does not stop the others."""
    for check in (_python, _lock, _java, _jars, _disk):
        yield _guarded(check.__name__.strip("_"), check)
    yield _guarded("kafka", _kafka)
    yield from _postgres()


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except TallyweirError as error:
        return Check(name=name, ok=False, saw=error.saw, fix=error.fix)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    # The launcher refused anything older before this could run.
    return Check(name="python", ok=True, saw=f"{version}, {sys.executable}")


def _lock() -> Check:
    fresh = is_installed(RUNTIME_LOCK)
    return Check(
        name="lock",
        ok=fresh,
        saw=f".venv {'matches' if fresh else 'is older than'} {RUNTIME_LOCK}",
        fix="" if fresh else "start any tallyweir command by the launcher",
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
        saw += f"; {missing} are fetched on first use"
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
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
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


def _postgres() -> Iterator[Check]:
    dsn = given_home_dsn()
    if dsn is None:
        server = embedded_postgres()
        if not server.is_running():
            yield _starts_on_first_use("postgres", HOME_DSN_VARIABLE)
            return
        dsn = server.dsn
    try:
        with psycopg.connect(
            dsn, connect_timeout=_POSTGRES_TIMEOUT_S, autocommit=True
        ) as home:
            yield from _home_database(home)
    except (psycopg.OperationalError, psycopg.ProgrammingError) as exc:
        yield Check(
            name="postgres",
            ok=False,
            saw=f"{shown_dsn(dsn)}: {' '.join(str(exc).split())}",
            fix=f"start that server, correct {HOME_DSN_VARIABLE} or the PG* variables, "
            f"or unset them and run {launcher()} up",
        )


def _home_database(home: psycopg.Connection[TupleRow]) -> Iterator[Check]:
    version = home.info.server_version // 10000
    supported = version in _POSTGRES_VERSIONS
    where = f"{home.info.host}:{home.info.port}/{home.info.dbname}"
    yield Check(
        name="postgres",
        ok=supported,
        saw=f"Postgres {version} at {where} as {home.info.user}",
        fix="" if supported else "use Postgres 15, 16, 17 or 18",
    )
    is_standby = _value(home, "SELECT pg_is_in_recovery()")
    yield Check(
        name="primary",
        ok=not is_standby,
        saw="a standby, which takes no writes" if is_standby else "takes writes",
        fix="connect to the primary (target_session_attrs=primary)"
        if is_standby
        else "",
    )
    may_create = _value(
        home, "SELECT has_database_privilege(current_database(), 'CREATE')"
    )
    yield Check(
        name="privileges",
        ok=bool(may_create),
        saw=f"may {'' if may_create else 'not '}create schemas in {home.info.dbname}",
        fix=""
        if may_create
        else f'GRANT CREATE ON DATABASE "{home.info.dbname}" TO "{home.info.user}"',
    )
    yield _durability(home)
    prepared = _value(home, "SELECT current_setting('max_prepared_transactions')")
    saw = f"max_prepared_transactions = {prepared} (needed for several databases only)"
    yield Check(name="prepared", ok=True, saw=saw)
    yield _clock(home)


def _durability(home: psycopg.Connection[TupleRow]) -> Check:
    fsync = _value(home, "SELECT current_setting('fsync')")
    durable = fsync == "on"
    return Check(
        name="durability",
        ok=durable,
        saw=f"fsync = {fsync}",
        fix=""
        if durable
        else "ALTER SYSTEM SET fsync = on; a lost commit would be counted twice",
    )


def _clock(home: psycopg.Connection[TupleRow]) -> Check:
    before = time.time()
    theirs = _value(
        home, "SELECT extract(epoch FROM clock_timestamp())::double precision"
    )
    ours = (before + time.time()) / 2
    assert isinstance(theirs, float)
    skew = abs(theirs - ours)
    fine = skew <= _CLOCK_SKEW_S_MAX
    return Check(
        name="clock",
        ok=fine,
        saw=f"{skew:.3f} s apart from Postgres",
        fix="" if fine else "run an NTP client (chrony) on both machines",
    )


def _value(home: psycopg.Connection[TupleRow], query: str) -> object:
    row = home.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]
