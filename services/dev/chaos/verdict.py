"""All invariants of a run, judged."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tallyweir.services.dev.chaos.invariants import (
    Sent,
    Witnesses,
    check_branches,
    check_ledger,
    check_records,
    check_windows,
)
from tallyweir.services.dev.chaos.nemesis import DriverDeath
from tallyweir.services.dev.chaos.observed_run import LedgerBatch, ObservedRun
from tallyweir.services.dev.chaos.snapshots import Snapshot, judge_against_sent
from tallyweir.services.dev.chaos.supervisor import FENCED, DriverEnd
from tallyweir.services.operate.spark_process import VERIFIED, ReplayResult
from tallyweir.sinks.postgres.audit import Check, Receipt, Verdict
from tallyweir.sinks.postgres.audit.receipt import judge, not_applicable
from tallyweir.sinks.postgres.audit.replay.replay_receipt import check_replay

#: Exit code of a driver that could lose or double events if it went on.
_FATAL = 70
#: Exit codes of a driver that failed because a server failed, or was away at its start.
_OUTSIDE = (75, 78)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Seconds from the death of a driver to the next committed batch.

    Attributes:
        seconds: The duration for each death, in ascending order.
    """

    seconds: tuple[float, ...]

    def as_json(self) -> dict[str, float | int | None]:
        """Return the usual percentiles; None if no driver died."""
        return {
            "p50": self._percentile(0.5),
            "p99": self._percentile(0.99),
            "max": self._percentile(1.0),
            "n": len(self.seconds),
        }

    def _percentile(self, share: float) -> float | None:
        if not self.seconds:
            return None
        index = max(0, -(-len(self.seconds) * share // 1) - 1)
        return round(self.seconds[int(index)], 2)


def judge_tables(
    sent: Sent, found: ObservedRun, witnesses: Witnesses
) -> tuple[Check, ...]:
    """Judge what the tables hold."""
    return (
        *check_records(sent, found),
        *check_ledger(sent, found, witnesses),
        *check_branches(found),
        check_windows(sent, found),
    )


def judge_snapshots(
    snapshots: Sequence[Snapshot], fractured: Sequence[str], sent: Sent
) -> Check:
    """I4: no snapshot shows a part of a batch; a run without any proves nothing."""
    violations = [*fractured, *judge_against_sent(snapshots, sent)]
    if not snapshots:
        violations.append("no snapshot was taken")
    return judge(
        "I4_snapshots_whole",
        checked=len(snapshots),
        unit="snapshots",
        violations=violations,
    )


def judge_prepared(
    left: Mapping[str, Sequence[str]], *, databases: int, seconds: float
) -> Check:
    """I9: once the faults are over, nothing stays prepared in any database.

    Args:
        left: Prepared transactions, by database.
        databases: Number of databases that were checked.
        seconds: The greatest age at which a prepared transaction was seen before.
    """
    return judge(
        "I9_nothing_left_prepared",
        checked=databases,
        unit="databases",
        violations=[
            f"{gid} is still prepared in {name}"
            for name, gids in left.items()
            for gid in gids
        ],
        note=f"longest in doubt: {seconds:.1f} s" if databases > 1 else "",
    )


def judge_driver_ends(ends: Sequence[DriverEnd], claims: Sequence[int]) -> Check:
    """Drivers end when they are killed, drained or superseded, and never as fatal.

    A driver may also end because a server was away when it started.
    """
    violations = []
    outside = 0
    newest = max(claims, default=0)
    for end in ends:
        driver, code = end.driver, end.exit_code
        is_fenced = code == FENCED and driver.epoch < newest
        is_drained = code == 0 and driver.is_draining
        if driver.is_killed or is_fenced or is_drained:
            continue
        if code in _OUTSIDE:
            outside += 1
        else:
            what = "fatal" if code == _FATAL else "without a reason"
            violations.append(f"{driver} ended with {code}, {what}: {end.last_line}")
    return judge(
        "driver_ends",
        checked=len(ends),
        unit="drivers",
        violations=violations,
        note=f"{outside} found a server away" if outside else "",
    )


def judge_sent_log(sent: int, counted: int) -> Check:
    """Kafka's own count of committed records equals that of the sent log."""
    violations = []
    if sent != counted:
        violations.append(f"{counted} records in Kafka, {sent} in the sent log")
    return judge("sent_log", checked=sent, unit="records", violations=violations)


def judge_receipt(receipt: Receipt) -> Check:
    """The product's own ``verify`` finds nothing wrong either."""
    return judge(
        "verify",
        checked=sum(check.checked for check in receipt.checks),
        unit="things",
        violations=[
            f"{check.name}: {violation}"
            for check in receipt.failed
            for violation in check.violations
        ]
        or ([] if receipt.is_verified else [receipt.summary]),
    )


def judge_replay(result: ReplayResult) -> Check:
    """A replay from Kafka without faults computes the same rows."""
    if result.receipt is None:
        return judge(
            "replay",
            checked=0,
            unit="rows",
            violations=[f"the replay ended with {result.exit_code}"],
        )
    check = check_replay(result.receipt)
    if check.verdict is Verdict.OK and result.receipt["verdict"] != VERIFIED:
        # All results of chaos are deterministic, and Kafka still has all records.
        return replace(check, verdict=Verdict.FAILED, violations=(check.note,))
    return check


def outside_of_chaos() -> tuple[Check, ...]:
    """List the invariants that chaos cannot test."""
    return (
        not_applicable(
            "I12_bloom_never_decides", unit="look-ups", why="a property of the code"
        ),
        not_applicable(
            "I14_http", unit="requests", why="the run's producers speak Kafka"
        ),
    )


def measure_recovery(
    deaths: Sequence[DriverDeath], batches: Sequence[LedgerBatch]
) -> Recovery:
    """Measure the time from each death to the first batch of a newer epoch."""
    seconds = []
    for death in deaths:
        later = [
            batch.published_at
            for batch in batches
            if batch.epoch > death.epoch and batch.published_at > death.at
        ]
        if later:
            delay: dt.timedelta = min(later) - death.at
            seconds.append(delay.total_seconds())
    return Recovery(seconds=tuple(sorted(seconds)))


def has_failed(checks: Sequence[Check]) -> bool:
    """Tell whether any invariant is broken."""
    return any(check.verdict is Verdict.FAILED for check in checks)
