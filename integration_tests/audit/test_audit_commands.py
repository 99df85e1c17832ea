"""The commands that audit, as a user types them, over two databases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from integration_tests.harness.sharded_numbers import Places
from tallyweir.services.cli.app import build_app
from tallyweir.sinks import kafka_admin
from tallyweir.sinks.protocol.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _home(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLYWEIR_HOME_DSN", places.home)
    # Nobody is there; what the databases know must do.
    monkeypatch.setenv("TALLYWEIR_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setattr(kafka_admin, "BROKER_TIMEOUT_S", 1.0)


def _said(*arguments: str) -> str:
    result = CliRunner().invoke(build_app(), arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_environment_says_where_the_databases_are(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receipt names them, for people and for programs."""
    monkeypatch.setenv("TALLYWEIR_DATABASES", json.dumps(dict(places.databases)))
    said = _said("verify", "numbers")
    assert "databases checked: home, billing" in said
    receipt = json.loads(_said("verify", "numbers", "--json"))
    assert receipt["verified"] is True
    assert receipt["databases"] == ["home", "billing"]
    assert "in billing (branch billing.0 committed)" in _said("why", "numbers", "5")


def test_the_pipeline_file_says_where_the_databases_are(
    places: Places, tmp_path: Path
) -> None:
    """A file that is named is enough, unless a password is needed."""
    file = tmp_path / "numbers.yaml"
    databases = json.dumps(dict(places.databases))
    file.write_text(f"pipeline: numbers\ndatabases: {databases}\n")
    assert "databases checked: home, billing" in _said("verify", str(file))


def test_without_either_the_commands_ask_for_the_database() -> None:
    """No receipt is given over half of the rows."""
    with pytest.raises(ConfigurationError, match=r"DATABASE_UNKNOWN.*'billing'"):
        _said("verify", "numbers")


def test_status_shows_the_databases_without_being_able_to_reach_them(
    places: Places,
) -> None:
    """What is in doubt is known at home."""
    places.kill_after_decision()
    status = json.loads(_said("status", "numbers", "--json").splitlines()[-1])
    assert (status["visible_through"], status["last_sequence"]) == (2, 3)
    (billing,) = status["databases"]
    assert (billing["database"], billing["in_doubt"]) == ("billing", 1)
    said = _said("status", "numbers")
    assert "visible through  batch 2 of 3" in said
    assert "DATABASE_UNKNOWN" in said
