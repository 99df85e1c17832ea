"""A real driver over three databases: every row in exactly one of them."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from integration_tests.harness.driver_world import SOURCE, DriverWorld
from integration_tests.harness.readings import sent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_EVENTS = 120
_SENSORS = [f"s{n}" for n in range(12)]
_PIPELINE = (
    SOURCE
    + """
    databases:
      billing:
      archive: DECLARED
    outputs:
      - append: {{table: spread, database: [billing, home], shard_by: [sensor, site]}}
      - append: {{table: split, database: archive, branches: 3}}
      - append: {{table: parallel, branches: 2}}
      - window:
          table: counted
          fixed: 1 hour
          by: [sensor, grade]
          database: [archive, home, billing]
          shard_by: [sensor]
          aggregate: {{readings: count(*), total: sum(amount)}}
"""
)


@pytest.fixture
def databases(server_dsn: str) -> Iterator[dict[str, str]]:
    """Fresh databases beside the home."""
    names = {name: f"{name}_{uuid.uuid4().hex[:12]}" for name in ("billing", "archive")}
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        for name in names.values():
            connection.execute(
                sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
            )
    yield {key: make_conninfo(server_dsn, dbname=name) for key, name in names.items()}
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        for name in names.values():
            connection.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            )


def _without_password(dsn: str, passfile: Path) -> str:
    """Put the password where libpq finds it: a pipeline file may not hold it."""
    settings = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    passfile.write_text(f"*:*:*:*:{settings.pop('password', '')}\n")
    passfile.chmod(0o600)
    return make_conninfo("", **settings, passfile=str(passfile))


def test_every_row_is_in_one_database_and_every_key_too(
    tmp_path: Path, kafka_bootstrap: str, home_dsn: str, databases: dict[str, str]
) -> None:
    """One database comes from the file, one from the environment, over batches."""
    world = DriverWorld(tmp_path, kafka_bootstrap, home_dsn)
    declared = _without_password(databases["archive"], tmp_path / "pgpass")
    world.write_pipeline(_PIPELINE.replace("DECLARED", json.dumps(declared)))
    world.topic.send(
        [
            sent(
                world.contract,
                event_id=f"r{n}",
                sensor=_SENSORS[n % 12],
                site=None if n % 3 else "x",
                amount=n,
            )
            for n in range(_EVENTS)
        ]
    )
    world.run_to_the_end(
        batch=50,
        environment={
            "TALLYWEIR_DATABASES": json.dumps({"billing": databases["billing"]})
        },
    )

    def fetch(place: str, query: str) -> list[tuple[object, ...]]:
        dsn = {**databases, "home": home_dsn}[place]
        with psycopg.connect(dsn) as connection:
            return connection.execute(query.encode()).fetchall()

    expected = Counter(f"r{n}" for n in range(_EVENTS))
    ids = {
        (table, place): [
            row[0] for row in fetch(place, f"SELECT event_id FROM {table}")
        ]
        for table, places in {
            "spread": ("billing", "home"),
            "split": ("archive",),
            "parallel": ("home",),
        }.items()
        for place in places
    }
    assert expected == Counter(ids["spread", "billing"] + ids["spread", "home"])
    assert ids["spread", "billing"], "both databases have rows"
    assert ids["spread", "home"], "both databases have rows"
    assert expected == Counter(ids["split", "archive"])
    assert expected == Counter(ids["parallel", "home"])
    groups = {
        place: fetch(place, "SELECT sensor, readings, total FROM counted")
        for place in ("archive", "home", "billing")
    }
    assert sorted(
        (sensor, 10, sum(range(number, _EVENTS, 12)))
        for number, sensor in enumerate(_SENSORS)
    ) == sorted(row for rows in groups.values() for row in rows)
    for dsn in (home_dsn, *databases.values()):
        with psycopg.connect(dsn) as connection:
            found = connection.execute("SELECT count(*) FROM pg_prepared_xacts")
            assert (0,) == found.fetchone()
