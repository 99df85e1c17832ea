"""Find the Kafka and the home database that this process works with.

The environment names them. For a server that it does not name, the process uses the
embedded one, and starts it when needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tallyweir.services.local.embedded.jars import ensure_jars
from tallyweir.services.local.embedded.java import class_archive, java_home
from tallyweir.services.local.embedded.state_directory import (
    ROOT,
    STATE_DIRECTORY_VARIABLE,
    is_checkout,
    state_directory,
)
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.settings import (
    FILE_SUFFIX,
    HOME_DSN_VARIABLE,
    SCRATCH_DSN_VARIABLE,
    read_setting,
)

KAFKA_VARIABLE = "TALLYWEIR_KAFKA_BOOTSTRAP"
ACTS_DSN_VARIABLE = "TALLYWEIR_ACTS_DSN"

#: A port on which no broker listens.
_NOBODYS_PORT = 1

# libpq's own variables that say where a server is.
_LIBPQ_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The addresses of Kafka and the home database.

    Attributes:
        kafka_bootstrap: ``host:port``, several separated by commas.
        home_dsn: A libpq connection string or URI, which may hold a password; empty
            for libpq's defaults, which the ``PG*`` variables set.
    """

    kafka_bootstrap: str
    home_dsn: str

    def __repr__(self) -> str:
        return f"Endpoints({self.kafka_bootstrap}, {shown_dsn(self.home_dsn)})"


def given_kafka_bootstrap(environ: Mapping[str, str] = os.environ) -> str | None:
    """The broker that the environment names; None means the embedded one."""
    return environ.get(KAFKA_VARIABLE) or None


def require_kafka_bootstrap(environ: Mapping[str, str] = os.environ) -> str:
    """The broker that the environment names.

    Raises:
        ConfigurationError: The environment names no broker; the embedded one needs no
            users or rights.
    """
    bootstrap = given_kafka_bootstrap(environ)
    if bootstrap is None:
        raise ConfigurationError(
            "SETTING_MISSING",
            saw=f"{KAFKA_VARIABLE} is not set.",
            why="This command needs your own Kafka; it does not work on the embedded "
            "one.",
            fix="Set it to host:port.",
        )
    return bootstrap


def given_home_dsn(environ: Mapping[str, str] = os.environ) -> str | None:
    """The home database that the environment names; None means the embedded one.

    ``TALLYWEIR_HOME_DSN``, or the content of its file, takes precedence, even if it is
    empty. If only libpq's variables are set, the answer is the empty string.
    """
    given = read_setting(environ, HOME_DSN_VARIABLE)
    if given is not None:
        return given
    if any(environ.get(name) for name in _LIBPQ_VARIABLES):
        return ""
    return None


def resolve_endpoints() -> Endpoints:
    """Find both servers; start an embedded one if none is named and none runs.

    For each server that it starts, it writes one line to stderr that says so and how to
    stop it.

    Raises:
        TallyweirError: An embedded server could not be started.
    """
    bootstrap = given_kafka_bootstrap()
    return Endpoints(
        kafka_bootstrap=_start_embedded_kafka() if bootstrap is None else bootstrap,
        home_dsn=resolve_home_dsn(),
    )


def resolve_home_dsn() -> str:
    """Find only the home database; see ``resolve_endpoints``.

    Raises:
        TallyweirError: The embedded server could not be started.
    """
    dsn = given_home_dsn()
    return _start_embedded_postgres() if dsn is None else dsn


def find_endpoints() -> Endpoints:
    """Find both servers without starting one, for commands that only look or act.

    If the embedded Kafka does not run, the result holds its last address, so that the
    command can still report what the home database knows.

    Raises:
        ConfigurationError: As ``find_home_dsn``.
    """
    home_dsn = find_home_dsn()
    bootstrap = given_kafka_bootstrap()
    if bootstrap is None:
        from tallyweir.services.local.embedded.servers import embedded_kafka  # noqa: PLC0415 - slow

        bootstrap = f"127.0.0.1:{embedded_kafka().last_port() or _NOBODYS_PORT}"
    return Endpoints(kafka_bootstrap=bootstrap, home_dsn=home_dsn)


def find_kafka_bootstrap() -> str:
    """Find only Kafka, without starting a server.

    Raises:
        ConfigurationError: ``SERVER_NOT_RUNNING``.
    """
    bootstrap = given_kafka_bootstrap()
    if bootstrap is not None:
        return bootstrap
    from tallyweir.services.local.embedded.servers import embedded_kafka  # noqa: PLC0415 - slow

    server = embedded_kafka()
    if server.is_running():
        return f"127.0.0.1:{server.last_port() or _NOBODYS_PORT}"
    raise ConfigurationError(
        "SERVER_NOT_RUNNING",
        saw=f"{KAFKA_VARIABLE} is not set, and the embedded Kafka does not run.",
        why="No Kafka is available, and commands that only read do not start one.",
        fix=f"{launcher()} up starts the embedded servers; or set {KAFKA_VARIABLE}.",
    )


def find_home_dsn() -> str:
    """Find the home database without starting a server.

    Raises:
        ConfigurationError: ``SERVER_NOT_RUNNING``.
    """
    dsn = given_home_dsn()
    if dsn is not None:
        return dsn
    from tallyweir.services.local.embedded.servers import embedded_postgres  # noqa: PLC0415 - slow

    server = embedded_postgres()
    if server.is_running():
        return server.dsn
    raise ConfigurationError(
        "SERVER_NOT_RUNNING",
        saw=f"{HOME_DSN_VARIABLE} is not set, and the embedded Postgres does not run.",
        why="No home database is available, and commands that only read do not start "
        "one.",
        fix=f"{launcher()} up starts the embedded servers; or set {HOME_DSN_VARIABLE}.",
    )


def find_databases() -> dict[str, str]:
    """Find the databases of ``resolve_databases`` without starting a server.

    Raises:
        TallyweirError: The variable is malformed, or as ``find_home_dsn``.
    """
    return _with_others(find_home_dsn())


def resolve_acts_dsn(home_dsn: str) -> str:
    """Return the connection string for acts; by default it is ``home_dsn``.

    Raises:
        ConfigurationError: The variable and the variable of its file are both set.
    """
    return read_setting(os.environ, ACTS_DSN_VARIABLE) or home_dsn


def resolve_databases() -> dict[str, str]:
    """Find the home database and the databases of ``TALLYWEIR_DATABASES``, by name.

    Raises:
        TallyweirError: The variable is malformed, or as ``resolve_home_dsn``.
    """
    return _with_others(resolve_home_dsn())


def _with_others(home_dsn: str) -> dict[str, str]:
    from tallyweir.sinks.postgres.server.databases import parse_databases  # noqa: PLC0415 - slow
    from tallyweir.sinks.postgres.server.naming import HOME  # noqa: PLC0415 - slow

    return {HOME: home_dsn, **parse_databases(os.environ, {})}


def child_environment(endpoints: Endpoints) -> dict[str, str]:
    """The environment of a child process, so that it finds the same servers."""
    return _pointed_at(endpoints, spark_environment())


def scratch_environment() -> dict[str, str]:
    """The environment of a program that starts Spark, and works in scratch databases.

    They are made on the embedded Postgres, which this starts. The program has no other
    server, and one task at a time reads records in their order.

    Raises:
        TallyweirError: The server could not be started.
    """
    from tallyweir.services.local.embedded.servers import embedded_postgres  # noqa: PLC0415 - slow

    server = embedded_postgres()
    server.start()
    nowhere = Endpoints(
        kafka_bootstrap=f"127.0.0.1:{_NOBODYS_PORT}", home_dsn=server.dsn
    )
    return child_environment(nowhere) | {
        SCRATCH_DSN_VARIABLE: server.dsn,
        "TALLYWEIR_SPARK_MASTER": "local[1]",
    }


def program_environment(endpoints: Endpoints) -> dict[str, str]:
    """The same for a process that does not start Spark and so needs no Java."""
    return _pointed_at(endpoints, _own_environment())


def _pointed_at(endpoints: Endpoints, environment: dict[str, str]) -> dict[str, str]:
    environment = environment | {
        KAFKA_VARIABLE: endpoints.kafka_bootstrap,
        HOME_DSN_VARIABLE: endpoints.home_dsn,
    }
    # The dictionary above already holds the file's content; both must not be set.
    environment.pop(HOME_DSN_VARIABLE + FILE_SUFFIX, None)
    return environment


def _own_environment() -> dict[str, str]:
    environment = dict(os.environ) | {STATE_DIRECTORY_VARIABLE: str(state_directory())}
    if is_checkout():
        paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    return environment


def spark_environment() -> dict[str, str]:
    """This process's environment, and the variables that a child needs for Spark."""
    environment = _own_environment() | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JAVA_HOME": str(java_home()),
        "TALLYWEIR_SPARK_JARS": ",".join(jar.as_uri() for jar in ensure_jars("spark")),
    }
    archive = class_archive(environment)
    return environment | {"TALLYWEIR_CLASS_ARCHIVE": str(archive or "")}


def shown_dsn(dsn: str) -> str:
    """Return a connection string for display, with its password masked."""
    from psycopg import ProgrammingError  # noqa: PLC0415 - slow, and rarely needed
    from psycopg.conninfo import (  # noqa: PLC0415
        conninfo_to_dict,
        make_conninfo,
    )

    if not dsn:
        return "(libpq defaults, PG* variables)"
    try:
        fields = conninfo_to_dict(dsn)
    except ProgrammingError:
        return "(not a valid connection string)"
    if "password" in fields:
        fields["password"] = "***"  # noqa: S105 - a mask
    return make_conninfo("", **fields)


def launcher() -> str:
    """The command that the user can type in the current directory."""
    if not is_checkout():
        return "tallyweir"
    path = ROOT / "tallyweir"
    return "./tallyweir" if Path.cwd() == ROOT else str(path)


def _start_embedded_kafka() -> str:
    from tallyweir.services.local.embedded.servers import embedded_kafka  # noqa: PLC0415 - as above

    broker = embedded_kafka()
    if broker.start():
        _say_started("Kafka", broker.bootstrap, KAFKA_VARIABLE)
    return broker.bootstrap


def _start_embedded_postgres() -> str:
    from tallyweir.services.local.embedded.servers import embedded_postgres  # noqa: PLC0415 - as above

    server = embedded_postgres()
    if server.start():
        _say_started("Postgres", shown_dsn(server.dsn), HOME_DSN_VARIABLE)
    return server.dsn


def _say_started(name: str, where: str, variable: str) -> None:
    sys.stderr.write(
        f"tallyweir: {variable} is not set: started the embedded {name} ({where}); "
        f"stop it with {launcher()} down\n"
    )
