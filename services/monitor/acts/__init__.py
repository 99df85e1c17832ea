"""What somebody may do from the page: a registry, each act with its dry run.

Another act is another entry of a list of ``Act``: its name, its role, its fields, and a
function that does it or, in a dry run, only tells what it would do. The page, the
checks of what is asked for, and the table in docs/monitor.md come from the entry.
"""

from __future__ import annotations

from services.monitor.acts.act import Act, ActCall
from services.monitor.acts.fields import ActField, Arguments, FieldKind
from services.monitor.acts.registry import ACTS

__all__ = ["ACTS", "Act", "ActCall", "ActField", "Arguments", "FieldKind"]
