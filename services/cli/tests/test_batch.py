"""Files behind one ``--input`` are each an input, in the order that was typed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from tallyweir.services.cli import signals
from tallyweir.services.cli.app import build_app
from tallyweir.services.process import endpoints


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would have taken the command's place."""
    found: list[list[str]] = []

    def become(arguments: Sequence[str], _: object) -> None:
        found.append(list(arguments))

    monkeypatch.setattr(endpoints, "resolve_endpoints", lambda: None)
    monkeypatch.setattr(endpoints, "child_environment", lambda _: {})
    monkeypatch.setattr(signals, "become", become)
    monkeypatch.setattr(sys, "argv", ["tallyweir"])
    return found


@pytest.mark.parametrize(
    ("typed", "inputs"),
    [
        ("p.yaml --input a.csv --run r", "a"),
        ("p.yaml --run r --input a.csv b.csv c.csv", "abc"),
        ("p.yaml --input c.csv a.csv --run r --input b.csv d.csv", "cabd"),
        ("p.yaml --input=c.csv a.csv --disposition append --run=r", "ca"),
        ("--run r p.yaml --input a.csv b.csv", "ab"),
        ("--input a.csv --input b.csv --run r p.yaml", "ab"),
    ],
)
def test_each_file_is_an_input(
    started: list[list[str]], typed: str, inputs: str
) -> None:
    """As a shell spells a glob out."""
    done = CliRunner().invoke(build_app(), ["batch", *typed.split()])
    assert 0 == done.exit_code, done.output
    (arguments,) = started
    assert ["-m", "tallyweir.spark_jobs.batch", "p.yaml"] == arguments[:3]
    assert [f"--input={one}.csv" for one in inputs] == [
        one for one in arguments if one.startswith("--input")
    ]
    assert "--run=r" in arguments


@pytest.mark.parametrize(
    "typed", ["p.yaml q.yaml --run r", "p.yaml --run r s --input a.csv"]
)
def test_what_stands_behind_no_input_is_refused(
    started: list[list[str]], typed: str
) -> None:
    """It would be ignored otherwise."""
    done = CliRunner().invoke(build_app(), ["batch", *typed.split()])
    assert (2, []) == (done.exit_code, started)
