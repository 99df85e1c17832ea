"""Services log as much as they are told to."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import structlog

from tallyweir.services.cli import app as command_line
from tallyweir.sinks.process_log import configure_logging


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Leave no test that comes later with what this one has configured."""
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("level", "logged"), [("info", ["info", "warning"]), ("warning", ["warning"])]
)
def test_what_is_below_the_level_is_not_logged(
    level: str,
    logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each line that is logged is one."""
    monkeypatch.setenv("TALLYWEIR_LOG_LEVEL", level)
    configure_logging()
    log = structlog.get_logger()
    log.info("said")
    log.warning("said")
    lines = capsys.readouterr().err.splitlines()
    assert logged == [
        line.partition('"level": "')[2].partition('"')[0] for line in lines
    ]


@pytest.mark.parametrize("command", ["resolver", "relay"])
def test_a_misspelt_level_ends_a_service_before_it_works(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the code and the exit code that a driver ends with."""
    monkeypatch.setenv("TALLYWEIR_LOG_LEVEL", "inof")
    monkeypatch.setenv("TALLYWEIR_HOME_DSN", "host=127.0.0.1 port=1 connect_timeout=1")
    monkeypatch.setenv("TALLYWEIR_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setattr(sys, "argv", ["tallyweir", command, "--once"])
    assert 78 == command_line.main()
    assert capsys.readouterr().err.startswith("SETTING_INVALID\n")
