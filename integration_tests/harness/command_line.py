"""Commands of ``tallyweir``, run in the process of the test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tallyweir.services.cli.app import main
from tallyweir.sinks.postgres.server.databases import DATABASES_VARIABLE
from tallyweir.sinks.postgres.server.naming import HOME


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """A terminal of someone whose environment names some databases."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    databases: Mapping[str, str]

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command; return its exit code, stdout and stderr."""
        others = {name: dsn for name, dsn in self.databases.items() if name != HOME}
        self.monkeypatch.setenv("TALLYWEIR_HOME_DSN", self.databases[HOME])
        self.monkeypatch.setenv(DATABASES_VARIABLE, json.dumps(others))
        self.monkeypatch.setattr("sys.argv", ["tallyweir", *arguments])
        self.capsys.readouterr()
        try:
            code = main()
        except SystemExit as end:
            code = int(end.code or 0)
        told = self.capsys.readouterr()
        return code, told.out, told.err
