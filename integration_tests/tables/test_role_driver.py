"""A real driver and the commands, each under the role that docs/security.md names."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from integration_tests.harness.command_line import CommandLine
from integration_tests.harness.driver_world import SOURCE, DriverWorld, numbered
from integration_tests.harness.readings import sent
from integration_tests.harness.role_world import OWNER, role_world
from tallyweir.sinks.postgres.schema.roles import MONITOR, PUBLISHER, READER, RELAY
from tallyweir.sinks.postgres.server.naming import HOME

_PIPELINE = (
    SOURCE
    + """
    outputs:
      - append: {{table: readings}}
      - append: {{table: spread, database: [home, billing], shard_by: [event_id]}}
      - window:
          table: counted
          fixed: 1 hour
          by: [sensor]
          database: [home, billing]
          shard_by: [sensor]
          aggregate: {{readings: count(*)}}
"""
)


@pytest.mark.long
def test_a_driver_publishes_without_owning_the_schema(
    server_dsn: str,
    kafka_bootstrap: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A real driver, twice, and every command under the role that it needs."""
    with role_world(server_dsn) as roles:
        pipeline = DriverWorld(tmp_path, kafka_bootstrap, roles.dsn(MONITOR))
        pipeline.write_pipeline(_PIPELINE)
        publishers = roles.dsns(PUBLISHER)
        environment = {
            "TALLYWEIR_HOME_DSN": publishers[HOME],
            "TALLYWEIR_DATABASES": json.dumps({"billing": publishers["billing"]}),
        }
        events = numbered(pipeline, 0, 40)
        broken = sent(pipeline.contract, event_id="broken", at=None)
        pipeline.topic.send([*events, events[0], broken])
        pipeline.run_to_the_end(batch=20, environment=environment)
        # What the owner has staged, when it was still the one to run drivers.
        with psycopg.connect(roles.dsn(OWNER)) as owner:
            owner.execute("CREATE SCHEMA tallyweir_stage_1_0")
        # Another epoch drops the former one's staging and finds its windows.
        pipeline.topic.send(numbered(pipeline, 40, 10))
        pipeline.run_to_the_end(environment=environment)
        staging = pipeline.fetch(
            "SELECT nspname::text FROM pg_namespace "
            "WHERE starts_with(nspname, 'tallyweir_stage_1_') ORDER BY 1"
        )
        assert [("tallyweir_stage_1_0",), ("tallyweir_stage_1_2",)] == staging
        assert 50 == pipeline.value("SELECT count(*) FROM public.readings")
        assert 1 == pipeline.value("SELECT count(*) FROM tallyweir.duplicate_event")
        assert 1 == pipeline.value("SELECT count(*) FROM tallyweir.dead_letter")

        monkeypatch.setenv("TALLYWEIR_KAFKA_BOOTSTRAP", kafka_bootstrap)

        def run(role: str, *arguments: str) -> tuple[int, str]:
            line = CommandLine(
                monkeypatch=monkeypatch, capsys=capsys, databases=roles.dsns(role)
            )
            code, out, told = line.run(*arguments)
            return code, out + told

        for role, *arguments in (
            (MONITOR, "verify", "readings", "--recount"),
            (MONITOR, "status", "readings"),
            (MONITOR, "why", "readings", "n3"),
            (MONITOR, "why", "readings", "broken"),
            (MONITOR, "indoubt", "list"),
            (PUBLISHER, "repair", "readings", "--plan"),
            (PUBLISHER, "resolver", "--once"),
            (OWNER, "migrate", "--roles"),
        ):
            code, told = run(role, *arguments)
            assert 0 == code, (role, arguments, told)
        for role in (READER, RELAY):
            code, told = run(role, "verify", "readings")
            assert 78 == code, (role, told)
            assert "POSTGRES_PERMISSION" in told
