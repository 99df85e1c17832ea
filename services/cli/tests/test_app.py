"""The command line as a whole."""

from __future__ import annotations

import sys

import pytest
import typer
from typer.testing import CliRunner

from tallyweir.services.cli import app as command_line
from tallyweir.sinks.protocol.errors import FencedError


def commands() -> list[str]:
    """Every registered command's name."""
    group = typer.main.get_command(command_line.build_app())
    return sorted(group.commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", commands())
def test_every_command_shows_an_example(command: str) -> None:
    """A reader of --help sees a line that works when it is typed."""
    shown = CliRunner().invoke(command_line.build_app(), [command, "--help"])

    assert shown.exit_code == 0
    assert f"Example:\n    tallyweir {command}" in shown.output


def test_loading_all_commands_imports_nothing_heavy() -> None:
    """--help stays fast: clients and engines are imported by the command that runs."""
    import subprocess

    program = (
        "import sys; from tallyweir.services.cli.app import build_app; build_app(); "
        "print(*{'psycopg', 'confluent_kafka', 'pyarrow', 'numpy', 'fastavro', "
        "'pyspark', 'pydantic', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "\n"


def test_an_error_in_a_command_becomes_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No stack trace reaches the user, wherever --debug is missing."""

    def build_failing() -> typer.Typer:
        app = typer.Typer()

        @app.command()
        def fail() -> None:
            raise FencedError("FENCED", saw="epoch 8.", why="Newer.", fix="stop")

        return app

    monkeypatch.setattr(command_line, "build_app", build_failing)
    monkeypatch.setattr(sys, "argv", ["tallyweir"])

    assert command_line.main() == 76
    assert "Traceback" not in capsys.readouterr().err
