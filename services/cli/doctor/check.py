"""The outcome of one check by ``doctor``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: Name of the checked thing.
        ok: Tallyweir can work with it.
        saw: What the check found; never a secret.
        fix: What to do when it is not ok, or when it is ok with a warning.
    """

    name: str
    ok: bool
    saw: str
    fix: str = ""

    @property
    def is_warning(self) -> bool:
        """Whether it is ok, but the operator may have to do something."""
        return self.ok and bool(self.fix)
