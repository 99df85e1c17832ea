"""Who gets into Kafka and Postgres, with what, and what each may do there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration_tests.containers.deployment import Deployment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_each_user_of_kafka_may_do_its_work_and_nothing_else(
    system: Deployment,
) -> None:
    """Rights that nobody needs are rights that a thief has."""
    found = json.loads(system.run_python("kafka_rights").splitlines()[-1])
    nothing = {
        "read the topic": False,
        "write dead letters": False,
        "make a topic": False,
        "delete a topic": False,
    }
    assert found["ingest"] == found["producer"] == nothing
    only_reading = {"read the topic": True, "write the topic": False}
    for user in ("driver", "viewer", "alerts"):
        assert found[user] == nothing | only_reading
    # Who commits offsets must be one who may read, although the relay never does.
    assert found["relay"] == nothing | {
        "read the topic": True,
        "write dead letters": True,
        "write the topic": False,
    }


@pytest.mark.parametrize(
    ("service", "program"),
    [("kafka-access", "kafka_entry"), ("migrate", "postgres_entry")],
    ids=["kafka", "postgres"],
)
def test_a_server_lets_nobody_in_who_differs_in_one_setting(
    system: Deployment, service: str, program: str
) -> None:
    """Encryption, the server's name and the login are each insisted on."""
    entered = json.loads(system.run_python(program, service=service).splitlines()[-1])
    assert len(entered) == 7
    assert [name for name, enters in entered.items() if enters] == [
        "the right settings"
    ]


def test_no_role_of_a_service_is_a_superuser(system: Deployment) -> None:
    """Not at run time, and not the owner."""
    rows = system.query(
        "SELECT rolname FROM pg_roles WHERE rolsuper OR rolcreaterole OR rolcreatedb "
        "OR rolbypassrls OR rolreplication"
    )
    assert rows == [["postgres"]]


def test_a_secret_file_is_no_business_of_others(secrets: Path) -> None:
    """The files are readable, for the container's user; their directory is not."""
    assert secrets.stat().st_mode & 0o077 == 0
