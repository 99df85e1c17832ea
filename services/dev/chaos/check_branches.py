"""Invariants about batches over several databases: all branches of a batch, or none.

Pure, like ``check_records``.
"""

from __future__ import annotations

from collections import Counter

from tallyweir.services.dev.chaos.check_ledger import RangeFinder
from tallyweir.services.dev.chaos.observed_run import ObservedRun
from tallyweir.services.dev.chaos.plan import HOME
from tallyweir.sinks.postgres.audit import Check
from tallyweir.sinks.postgres.audit.receipt import judge, not_applicable


def check_branches(found: ObservedRun) -> tuple[Check, ...]:
    """Compare the decisions, markers and rows of the participants with one another."""
    if not found.decided and not found.markers:
        why = "one database prepares nothing"
        return (
            not_applicable("I7_branches_follow_decisions", unit="branches", why=why),
            not_applicable("I7_branches_are_whole", unit="branches", why=why),
        )
    return (_check_decisions(found), _check_rows(found))


def _check_decisions(found: ObservedRun) -> Check:
    """I7: each decided branch is committed once; no other branch is committed."""
    decided = {
        (branch.database, branch.sequence, branch.gid) for branch in found.decided
    }
    committed = Counter(
        (marker.database, marker.sequence, marker.gid) for marker in found.markers
    )
    batches = {batch.sequence for batch in found.batches}
    violations = [
        f"{gid} of batch {sequence} was decided and is not committed in {database}"
        for database, sequence, gid in sorted(decided - committed.keys())
    ]
    violations += [
        f"{gid} of batch {sequence} is committed in {database}, undecided"
        for database, sequence, gid in sorted(committed.keys() - decided)
    ]
    violations += [
        f"{branch[2]} is committed {count} times"
        for branch, count in committed.items()
        if count != 1
    ]
    violations += [
        f"{branch.gid} belongs to batch {branch.sequence}, which is not in the ledger"
        for branch in found.decided
        if branch.sequence not in batches
    ]
    return judge(
        "I7_branches_follow_decisions",
        checked=len(decided) + len(committed),
        unit="branches",
        violations=violations,
    )


def _check_rows(found: ObservedRun) -> Check:
    """I7: a participant has as many rows of a batch as the batch's branches moved."""
    finder = RangeFinder(found.ranges)
    rows: Counter[tuple[str, int]] = Counter()
    for row in found.rows:
        part = finder.find(row.place)
        if part is not None and row.database != HOME:
            rows[row.database, part.sequence] += 1
    moved: Counter[tuple[str, int]] = Counter()
    for marker in found.markers:
        if marker.database != HOME:
            moved[marker.database, marker.sequence] += marker.rows or 0
    violations = [
        f"batch {sequence} moved {moved[database, sequence]} rows to {database}, "
        f"which has {rows[database, sequence]}"
        for database, sequence in sorted(rows.keys() | moved.keys())
        if rows[database, sequence] != moved[database, sequence]
    ]
    return judge(
        "I7_branches_are_whole",
        checked=len(found.markers),
        unit="branches",
        violations=violations,
    )
