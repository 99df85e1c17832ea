"""The outcome of one look that ``doctor`` takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The outcome of one look.

    Attributes:
        name: What was looked at.
        ok: Whether Tallyweir can work with it.
        saw: What was found; never a secret.
        fix: What to do when it is not ok, or when it is and somebody should know.
    """

    name: str
    ok: bool
    saw: str
    fix: str = ""

    @property
    def is_warning(self) -> bool:
        """Whether it is ok, and there may be something to do all the same."""
        return self.ok and bool(self.fix)
