"""The tree of errors."""

from __future__ import annotations

import pickle

import pytest

from tallyweir.sinks.protocol import errors

_KINDS = (
    errors.ConfigurationError,
    errors.RetryableError,
    errors.OutcomeUnknownError,
    errors.FencedError,
    errors.FatalError,
    errors.DisagreementError,
)


@pytest.mark.parametrize("kind", _KINDS)
def test_an_error_survives_pickling(kind: type[errors.TallyweirError]) -> None:
    """Errors cross process borders whole."""
    error = kind("CODE", saw="Saw.", why="Why.", fix="Fix.")
    copy = pickle.loads(pickle.dumps(error))
    assert (kind, str(error)) == (type(copy), str(copy))
    assert (error.code, error.saw, error.why, error.fix, error.exit_code) == (
        copy.code,
        copy.saw,
        copy.why,
        copy.fix,
        copy.exit_code,
    )


def test_an_unknown_outcome_may_be_tried_again() -> None:
    """Whoever handles retryable errors handles a lost answer as well."""
    assert issubclass(errors.OutcomeUnknownError, errors.RetryableError)


def test_exit_codes_tell_the_kinds_apart() -> None:
    """Scripts learn from the exit code what may be done next."""
    assert [78, 75, 75, 76, 70, 70] == [kind.exit_code for kind in _KINDS]


def test_an_error_is_described_in_four_lines() -> None:
    """Code, saw, why, fix; lines that follow within one are indented."""
    error = errors.FatalError("CODE", saw="Saw.\nMore.", why="Why.", fix="Fix.")
    assert [
        "CODE",
        "  saw: Saw.\n       More.",
        "  why: Why.",
        "  fix: Fix.",
    ] == errors.describe_error(error)


def test_any_other_exception_is_described_by_its_name() -> None:
    """An exception without our fields is shown without inventing them."""
    assert "KeyError" == errors.describe_error(KeyError("x"))[0]
