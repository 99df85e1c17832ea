"""The command line as a whole."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tallyweir.schemas.pipeline.pipeline_file import load_pipeline
from tallyweir.services.cli import app as command_line
from tallyweir.services.cli.pipelines.templates import init
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


@pytest.mark.parametrize("has_schema", [False, True])
def test_a_template_names_the_schema_that_lies_beside_it(
    tmp_path: Path, *, has_schema: bool
) -> None:
    """Editors read it in the first line; without the file they would look in vain."""
    if has_schema:
        (tmp_path / "pipeline.schema.json").write_text("{}")
    init("page-views", directory=tmp_path)
    written = (tmp_path / "page-views.yaml").read_text("utf-8")
    line = "# yaml-language-server: $schema=pipeline.schema.json\n"
    assert written.startswith(line) == has_schema
    assert load_pipeline(tmp_path / "page-views.yaml").name == "page-views"
