"""Commands that look, or act on what is there, start no embedded server."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tallyweir.services.cli.app import build_app
from tallyweir.services.local.embedded.state_directory import STATE_DIRECTORY_VARIABLE
from tallyweir.services.process.endpoints import KAFKA_VARIABLE, find_endpoints
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.settings import HOME_DSN_VARIABLE

_COMMANDS = (
    "accept-gap p --reason r",
    "alerts list",
    "cost p",
    "dead-letters list p",
    "dead-letters show p t/0/1",
    "dead-letters redrive p --all --reason r --dry-run",
    "diff p q",
    "drain p --keep-windows --reason r --dry-run",
    "erasures p",
    "indoubt list",
    "logs p",
    "look --topic t",
    "monitor",
    "offsets show p",
    "offsets reset p --to-offset t:0=1 --reason r --dry-run",
    "pause p --reason r",
    "repair p --plan",
    "resume p",
    "rollback p 1 --reason r",
    "samples p",
    "scale p",
    "snapshot list p",
    "state p k",
    "status p",
    "verify p",
    "versions p",
    "wait-for p t 0 1",
    "why p e",
)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory in which no server ever ran."""
    for name in (HOME_DSN_VARIABLE, KAFKA_VARIABLE, "PGHOST", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_look_says_that_nothing_runs(command: str, state: Path) -> None:
    """After `down` the servers stay down, and the error says how to start them."""
    with pytest.raises(ConfigurationError, match=r"SERVER_NOT_RUNNING.*up starts"):
        CliRunner().invoke(build_app(), command.split(), catch_exceptions=False)
    assert not (state / "kafka").exists()
    assert not (state / "postgres").exists()


def test_a_home_that_is_named_is_asked_although_no_broker_runs(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the home knows is told; Kafka is where it was, or nowhere."""
    monkeypatch.setenv(HOME_DSN_VARIABLE, "host=there")
    assert find_endpoints().kafka_bootstrap == "127.0.0.1:1"
    (state / "kafka").mkdir()
    (state / "kafka" / "ports.json").write_text('{"port": 20017, "controller": 1}')
    assert find_endpoints().kafka_bootstrap == "127.0.0.1:20017"
