"""All acts of the page, by name."""

from __future__ import annotations

from collections.abc import Mapping

from tallyweir.services.monitor.acts.act_kind import ActKind
from tallyweir.services.monitor.acts.acts_on_history import HISTORY
from tallyweir.services.monitor.acts.flow import FLOW
from tallyweir.services.monitor.acts.replacement import REPLACEMENT

ACTS: Mapping[str, ActKind] = {act.name: act for act in (*FLOW, *HISTORY, *REPLACEMENT)}
