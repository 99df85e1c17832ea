"""Real servers for the tests: a broker for all, a fresh database for each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import structlog
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from integration_tests.harness.fresh_databases import fresh_database
from integration_tests.harness.kept_spark import KEPT_SPARK
from integration_tests.harness.lane_servers import lane_servers
from integration_tests.harness.postgres_driver import execute
from integration_tests.harness.sharded_numbers import (
    Places,
    publish_three,
    start_driver,
    stop,
)
from integration_tests.ledger_scenario import LedgerScenario
from tallyweir.services.process.endpoints import Endpoints
from tallyweir.sinks.faultpoints import disarm_all
from tallyweir.sinks.postgres.schema.migrations import migrate

#: What a migration draws for each home: a copy draws its own.
_OWN_INSTALLATION = """
UPDATE tallyweir.installation
SET fingerprint_key = substring(sha256(uuid_send(gen_random_uuid())) FOR 16),
    installation_id = DEFAULT,
    installed_at = now()
"""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that may take longest, so that lanes end together."""
    items.sort(key=_patience, reverse=True)


def _patience(item: pytest.Item) -> float:
    # Tests of the containers need their order.
    module = item.getparent(pytest.Module)
    if module is None or "containers" in module.path.parts:
        return 0.0
    mark = module.get_closest_marker("timeout")
    return 0.0 if mark is None else float(mark.args[0])


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A log that a test has set up ends with it: pytest closes what it writes to."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def lane(worker_id: str) -> Iterator[Endpoints]:
    """A broker and a Postgres, and an environment that names them."""
    with pytest.MonkeyPatch.context() as patch:
        # These JVMs live for seconds: the second compiler took half of a driver's
        # processor time and saved none. Spark's launcher reads the variable, and so
        # does that of every process below this one.
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
        with lane_servers(worker_id) as endpoints:
            yield endpoints
            KEPT_SPARK.end()


@pytest.fixture(scope="session")
def kafka_bootstrap(lane: Endpoints) -> str:
    """Where the broker is."""
    return lane.kafka_bootstrap


@pytest.fixture(scope="session")
def server_dsn(lane: Endpoints) -> str:
    """Where the Postgres server is, on which databases may be made."""
    return lane.home_dsn


@pytest.fixture
def empty_dsn(server_dsn: str) -> Iterator[str]:
    """A fresh database without any of our tables."""
    with fresh_database(server_dsn, "test") as dsn:
        yield dsn


@pytest.fixture(scope="session")
def migrated(server_dsn: str) -> Iterator[sql.Composable]:
    """What makes a database a copy of one that has our migrations.

    A copy takes a tenth of the time that the migrations take.
    """
    with fresh_database(server_dsn, "migrated") as dsn:
        migrate(dsn)
        name = str(conninfo_to_dict(dsn)["dbname"])
        yield sql.SQL("TEMPLATE {}").format(sql.Identifier(name))


@pytest.fixture
def home_dsn(server_dsn: str, migrated: sql.Composable) -> Iterator[str]:
    """A fresh database with our migrations applied."""
    with fresh_database(server_dsn, "test", migrated) as dsn:
        execute(dsn, _OWN_INSTALLATION)
        yield dsn


@pytest.fixture
def billing_dsn(server_dsn: str) -> Iterator[str]:
    """A second database, fresh; what stays prepared in it is rolled back."""
    with fresh_database(server_dsn, "billing") as dsn:
        yield dsn


@pytest.fixture
def connection(home_dsn: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """A connection to a database with the product's schema."""
    with psycopg.connect(home_dsn) as opened:
        yield opened


@pytest.fixture
def scenario(connection: psycopg.Connection[TupleRow]) -> LedgerScenario:
    """Three batches by two drivers, with every fate and a transaction marker."""
    built = LedgerScenario(connection=connection).register(p0=0, p3=100)
    built.publish({0: "CCCD", 3: "CXCEC"})
    built.publish({0: "CLF-C", 3: "DCCCC"})
    built.claim()
    built.publish({0: "CCX", 3: ""})
    return built


@pytest.fixture
def places(
    home_dsn: str, billing_dsn: str, connection: psycopg.Connection[TupleRow]
) -> Iterator[Places]:
    """A home and a second database, with two batches over both."""
    driver = start_driver(home_dsn, billing_dsn)
    publish_three(driver, 0)
    publish_three(driver, 3)
    stop(driver)
    yield Places(home=home_dsn, billing=billing_dsn, connection=connection)
    disarm_all()


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"events-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def state_directory(tmp_path: Path) -> Path:
    """A state directory of the test's own, for drivers that it starts."""
    directory = tmp_path / "state"
    directory.mkdir()
    return directory
