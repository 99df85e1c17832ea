"""Whoever finds a check of ``verify`` failed finds it in the on-call page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tallyweir.sinks.postgres import audit

_AUDIT = Path(audit.__file__).parent
_PAGE = Path(__file__).parents[4] / "docs" / "operations.md"
_MAKERS = {"judge", "not_applicable", "Check"}


def _check_names() -> set[str]:
    """The names that checks are made with, in all modules of the audit."""
    return {
        name.value
        for path in _AUDIT.rglob("*.py")
        if "tests" not in path.parts
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in _MAKERS
        for name in (
            *call.args[:1],
            *(k.value for k in call.keywords if k.arg == "name"),
        )
        if isinstance(name, ast.Constant) and isinstance(name.value, str)
    }


def test_every_check_has_a_row_that_says_what_to_do() -> None:
    """And no row is of a check that is gone."""
    section = _PAGE.read_text("utf-8").partition("\n## When verify fails\n")[2]
    rows = re.findall(
        r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$",
        section.partition("\n## ")[0],
        re.MULTILINE,
    )
    assert len(rows) > 10
    assert _check_names() == set(rows)
