"""An output as two definitions describe it, and what they compute otherwise."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_TEXTS = re.compile(r"'(?:[^'\\]|\\.)*'" + r'|"(?:[^"\\]|\\.)*"')
#: Words that are neither a part of a column nor a function.
_NAMES = re.compile(r"(?<![\w.])\w+(?!\w|\s*\()")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedOutput:
    """An output that both versions have.

    Attributes:
        before: Its part of the definition in force.
        after: Its part of the other definition.
        recomputed: The columns that the definitions compute otherwise, folded.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    recomputed: Collection[str]

    def is_recomputed(self, columns: Iterable[str]) -> bool:
        """Tell whether one of some columns is computed otherwise."""
        return any(name.casefold() in self.recomputed for name in columns)

    def means_another(self, expression: str | None) -> bool:
        """Tell whether an expression that is the same reads such a column."""
        return expression is not None and _names_any(expression, self.recomputed)


def find_recomputed(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> frozenset[str]:
    """Return the columns that two definitions compute otherwise, folded.

    One that reads such a column is such a column itself, and so is one that only one
    of the definitions computes.
    """
    had, has = dict(before.get("compute", ())), dict(after.get("compute", ()))
    found = {name.casefold() for name in had | has if had.get(name) != has.get(name)}
    for name, expression in has.items():
        if _names_any(expression, found):
            found.add(name.casefold())
    return frozenset(found)


def _names_any(expression: str, folded: Collection[str]) -> bool:
    """Tell whether an expression names a column, outside of its texts."""
    words = _NAMES.findall(_TEXTS.sub(" ", expression).casefold())
    return not set(words).isdisjoint(folded)
