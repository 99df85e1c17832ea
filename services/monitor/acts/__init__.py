"""The acts that a user can do from the page: a registry, each with its dry run.

To add an act, add an ``ActKind`` to a list: its name, its role, its fields, and a
function that does it or, in a dry run, only reports what it would do. The page, the
checks of arguments, and the table in docs/monitor.md come from this entry.
"""

from __future__ import annotations

from tallyweir.services.monitor.acts.act_kind import (
    ActCall,
    ActField,
    ActKind,
    Arguments,
    FieldKind,
)
from tallyweir.services.monitor.acts.all_acts import ACTS

__all__ = ["ACTS", "ActCall", "ActField", "ActKind", "Arguments", "FieldKind"]
