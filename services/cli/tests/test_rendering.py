"""What a user reads when something goes wrong."""

from __future__ import annotations

import pytest

from tallyweir.services.cli.rendering import render_error
from tallyweir.sinks.protocol.errors import (
    ConfigurationError,
    FatalError,
    FencedError,
    RetryableError,
    TallyweirError,
)


class ContractError(Exception):
    """Shaped as the errors of the contracts are: explained, without an exit code."""

    code = "CONTRACT_RECURSIVE"
    saw = "a type that holds itself"
    why = "It can kill a decoder."
    fix = "break the recursion"


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (ConfigurationError, 78),
        (RetryableError, 75),
        (FencedError, 76),
        (FatalError, 70),
    ],
)
def test_an_explained_error_is_four_lines_and_its_exit_code(
    kind: type[TallyweirError], exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts match the code and the exit code, people read what, why and the fix."""
    error = kind("TOPIC_MISSING", saw="no topic t", why="No input.", fix="create t")

    assert exit_code == render_error(error)
    assert (
        "TOPIC_MISSING\n  saw: no topic t\n  why: No input.\n  fix: create t\n"
        == capsys.readouterr().err
    )


def test_a_contract_error_is_a_configuration_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Contracts know no exit codes: whoever gave the contract must change it."""
    assert render_error(ContractError()) == 78
    assert "CONTRACT_RECURSIVE\n" in capsys.readouterr().err


def test_what_was_seen_keeps_its_lines_under_the_label(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The end of a server's log stays readable, and is not mistaken for a label."""
    render_error(ConfigurationError("X", saw="first\nsecond", why="w", fix="f"))

    assert "  saw: first\n       second\n" in capsys.readouterr().err


def test_an_unexpected_error_is_one_line_without_a_stack_trace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A defect does not bury the user in Python."""
    assert render_error(ValueError("bad\nthing")) == 1
    assert (
        "UNEXPECTED ValueError: bad thing\n"
        "  fix: run again with --debug for the stack trace\n" == capsys.readouterr().err
    )


def test_debug_shows_the_stack_trace_first(capsys: pytest.CaptureFixture[str]) -> None:
    """Who asks for the trace gets it, and still the short form last."""
    try:
        raise ValueError("bad thing")  # noqa: TRY301 - the trace needs a raise
    except ValueError as error:
        render_error(error, debug=True)

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "UNEXPECTED ValueError: bad thing"
