"""The invariant about windows: their totals equal a recount of the events."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict

from tallyweir.services.dev.chaos.check_records import Sent
from tallyweir.services.dev.chaos.observed_run import (
    ObservedRun,
    WindowKey,
    WindowTotals,
)
from tallyweir.services.dev.chaos.workload import GOOD
from tallyweir.sinks.postgres.audit import Check
from tallyweir.sinks.postgres.audit.receipt import judge

_WINDOW_US = 15 * 60 * 1_000_000


def check_windows(sent: Sent, found: ObservedRun) -> Check:
    """I13: each window and site has exactly the totals of its events."""
    expected = _recount(sent)
    violations = []
    seen = set()
    for key, totals in found.windows:
        if key in seen:
            violations.append(f"{_name(key)} is there more than once")
        seen.add(key)
        if totals != expected.get(key):
            violations.append(f"{_name(key)}: {totals}, recounted {expected.get(key)}")
    violations += [f"{_name(key)} is missing" for key in sorted(expected.keys() - seen)]
    return judge(
        "I13_windows_equal_a_recount",
        checked=len(expected),
        unit="windows",
        violations=violations,
    )


def _recount(sent: Sent) -> dict[WindowKey, WindowTotals]:
    once = {record.event_id: record for record in sent.values() if record.kind in GOOD}
    amounts: dict[WindowKey, list[int]] = defaultdict(list)
    for record in once.values():
        start_us = record.happened_at_us - record.happened_at_us % _WINDOW_US
        start = dt.datetime.fromtimestamp(start_us / 1_000_000, tz=dt.UTC)
        amounts[start, record.site].append(record.amount)
    return {
        key: (len(several), sum(several), min(several), max(several))
        for key, several in amounts.items()
    }


def _name(key: WindowKey) -> str:
    return f"{key[0]:%Y-%m-%d %H:%M} {key[1]}"
