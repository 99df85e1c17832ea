"""The checks of ``doctor``: each reports what it saw and, if bad, the exact fix.

They start no embedded server, and touch no data.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tallyweir.services.cli.doctor.alert_checks import check_rules
from tallyweir.services.cli.doctor.check import Check
from tallyweir.services.cli.doctor.database_checks import (
    check_database,
    check_names,
    read_needs,
)
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
)
from tallyweir.sinks.kafka_settings import client_config
from tallyweir.sinks.postgres.server.branch_names import HOME
from tallyweir.sinks.postgres.server.databases import (
    DATABASES_VARIABLE,
    parse_databases,
)
from tallyweir.sinks.protocol.errors import TallyweirError
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
    client = AdminClient({**client_config(bootstrap), "log_level": 0})
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
