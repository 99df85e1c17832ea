"""The repository keeps its own rules, which no other tool checks.

Each check can be shown to fail: on a small tree that breaks every rule once, each of
them must find its violation.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from tallyweir.services.tests.tidy_checks import (
    CHECKS,
    FUNCTION_LINES_MAX,
    LONG_FUNCTIONS,
    MODULE_LINES_MAX,
    SHARED_NAMES,
    SLEEPERS,
    TELL_KINDS,
    dead_letter_reasons,
    error_codes,
    markdown_files,
    name_of,
    parse,
    python_files,
    shared_names,
    sleeps,
    sql_files,
    telling_kinds,
    tells_kinds,
)

ROOT = Path(__file__).resolve().parents[2]

_NAMES = [check.__name__ for check in CHECKS]


@pytest.mark.parametrize("check", CHECKS, ids=_NAMES)
def test_the_repository_is_tidy(check: Callable[[Path], list[str]]) -> None:
    """No rule of the repository is broken."""
    assert check(ROOT) == []


@pytest.mark.parametrize("check", CHECKS, ids=_NAMES)
def test_each_check_finds_what_it_is_for(
    check: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    """A tree that breaks every rule breaks this one."""
    package = tmp_path / "sinks"
    (package / "sql").mkdir(parents=True)
    (package / "sql" / "odd.sql").write_text("-- name: unused\nSELECT * FROM t\n")
    (package / "__init__.py").write_text('"""What is here.\n\n- ``gone``: is not."""')
    body = "    x = 1\n" * FUNCTION_LINES_MAX
    lines = [
        "import time",
        f"def long():\n{body}",
        "time.sleep(1)",
        "print('x')",
        "psycopg.connect('')",
        "raise FatalError('NEW_CODE', saw='')",
        "events.mark_dead(1, 'NEW_REASON', '')",
        "path = '/wo" + "rk/main'",
        "is_window = output.kind == 'window'",
    ]
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "odd.py").touch()
    (package / "odd.py").write_text("\n".join(lines) + "\n" * MODULE_LINES_MAX)
    table = "| a |\n|---|\n| 1 |\n"
    (tmp_path / "README.md").write_text(f"See [this](nowhere.md).\n\n{table}{table}")

    assert check(tmp_path) != []


def test_the_ratchet_only_holds_what_is_still_too_long() -> None:
    """A function that was shortened loses its exception."""
    functions = {
        f"{name_of(path, ROOT)}:{node.name}"
        for path in python_files(ROOT)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    }
    assert functions == set(LONG_FUNCTIONS)


def test_only_names_that_modules_share_may_be_shared() -> None:
    """A name that one module has left loses its exception."""
    assert set(SHARED_NAMES) == set(shared_names(ROOT))


def test_nobody_is_allowed_to_sleep_who_does_not() -> None:
    """The list of those who sleep is no longer than it must be."""
    sleeping = {
        name_of(path, ROOT)
        for path in python_files(ROOT, tests=False)
        if sleeps(parse(path))
    }
    assert sleeping == set(SLEEPERS)


@pytest.mark.parametrize(
    "line",
    [
        "output.kind == 'window'",
        "output['kind'] != 'append'",
        "output.kind in {'stateful', 'join'}",
        "output.kind is WINDOW",
        "isinstance(output, Append | WindowTable)",
    ],
)
def test_a_comparison_of_kinds_is_found_however_it_is_written(
    line: str, tmp_path: Path
) -> None:
    """By the ledger's name of the kind, or by its class."""
    module = tmp_path / "odd.py"
    module.write_text(line)
    assert tells_kinds(module)


def test_nothing_may_tell_kinds_apart_that_does_not() -> None:
    """The list of what compares kinds is no longer than it must be."""
    assert telling_kinds(ROOT) == set(TELL_KINDS)


def test_a_word_in_capitals_within_a_text_is_no_code(tmp_path: Path) -> None:
    """A code is the whole of an error's first argument, however short it is."""
    (tmp_path / "sinks").mkdir()
    (tmp_path / "sinks" / "odd.py").write_text(
        "raise ValueError('JSON is wanted')\nraise FatalError('FENCED', saw='')"
    )
    assert error_codes(tmp_path) == {"FENCED"}


def test_the_checks_look_at_the_whole_repository() -> None:
    """A check that looks at nothing finds nothing wrong."""
    assert len(python_files(ROOT)) > 100
    assert len(sql_files(ROOT)) > 10
    assert len(markdown_files(ROOT)) > 10
    assert len(error_codes(ROOT)) > 80
    assert len(dead_letter_reasons(ROOT)) > 10
