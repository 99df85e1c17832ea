"""The report about a finished run: one JSON object, or a page to keep."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tallyweir.services.dev.chaos.nemesis import Harm
from tallyweir.services.dev.chaos.plan import ChaosPlan, count_kinds
from tallyweir.services.dev.chaos.verdict import Recovery, has_failed
from tallyweir.services.local.embedded.state_directory import ROOT
from tallyweir.sinks.postgres.audit import Check, Verdict

_VIOLATIONS_TOLD = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosReport:
    """A finished run.

    Attributes:
        plan: The planned faults.
        git: The commit that ran, with ``+`` if the tree had changes.
        harm: The faults that hit.
        events: Number of records that were sent, by kind.
        transactions: Number of producer transactions, by outcome.
        checks: The invariants, judged.
        snapshots: Number of snapshots that the reader took.
        recovery: How long the pipeline took to go on after drivers' deaths.
        prepared_left: Number of prepared transactions at the end.
        batches: Number of published batches.
        staged_by_tasks: Number of these that Spark's tasks staged, and not the driver
            itself, as far as drivers reported before they died.
        drivers: Number of drivers that were started.
        seconds: Time from the start to the verdict.
    """

    plan: ChaosPlan
    git: str
    harm: Harm
    events: Mapping[str, int]
    transactions: Mapping[str, int]
    checks: tuple[Check, ...]
    snapshots: int
    recovery: Recovery
    prepared_left: int
    batches: int
    staged_by_tasks: int
    drivers: int
    seconds: float

    @property
    def verdict(self) -> str:
        """``ok`` or ``failed``; a run that injected nothing has failed."""
        is_idle = not self.harm.kinds
        return "failed" if is_idle or has_failed(self.checks) else "ok"

    @property
    def kills(self) -> dict[str, int]:
        """Faults that hit, by kind."""
        return {str(kind): count for kind, count in sorted(self.harm.kinds.items())}

    def as_json(self) -> dict[str, object]:
        """Return plain values."""
        return {
            "verdict": self.verdict,
            "seed": self.plan.options.seed,
            "git": self.git,
            "options": {
                **{
                    name: getattr(self.plan.options, name)
                    for name in ("kills", "events", "databases")
                },
                "format": str(self.plan.options.event_format),
                "batch_offsets_max": self.plan.batch_offsets_max,
            },
            "kills": self.kills,
            "events": dict(self.events),
            "transactions": dict(self.transactions),
            "invariants": [
                {
                    "name": check.name,
                    "verdict": check.verdict.value,
                    "checked": check.checked,
                    "violations": check.violation_count,
                    **(
                        {"first": check.violations[:_VIOLATIONS_TOLD]}
                        if check.violations
                        else {}
                    ),
                }
                for check in self.checks
            ],
            "snapshots": self.snapshots,
            "recovery_seconds": self.recovery.as_json(),
            "prepared_left": self.prepared_left,
            "batches": self.batches,
            "staged_by_tasks": self.staged_by_tasks,
            "drivers": self.drivers,
            "seconds": round(self.seconds, 1),
        }

    def as_markdown(self, today: dt.date) -> str:
        """Return a page that says what was run and how it ended."""
        options = self.plan.options
        planned = count_kinds(self.plan.injections)
        recovery = self.recovery.as_json()
        command = (
            f"./tallyweir chaos --kills {options.kills} --events {options.events} "
            f"--seed {options.seed} --databases {options.databases} "
            f"--format {options.event_format}"
        )
        work = (
            f"{sum(self.kills.values()):,} faults hit, {self.drivers:,} drivers ran, "
            f"{self.batches:,} batches were published, {self.staged_by_tasks:,} of "
            "them staged by Spark's tasks and the others by the driver itself; "
            f"{self.snapshots:,} snapshots were taken meanwhile."
        )
        speed = (
            "Seconds from the death of a driver to the next committed batch: "
            f"p50 {recovery['p50']}, p99 {recovery['p99']}, max {recovery['max']}, "
            f"over {recovery['n']} deaths."
        )
        lines = [
            f"# Chaos, {today:%Y-%m-%d}: {self.verdict}",
            "",
            f"`{command}`, at commit {self.git}, {self.seconds:,.0f} s.",
            "",
            work,
            speed,
            f"{self.harm.missed} faults met nothing at work and were tried again.",
            f"Batches read {self.plan.batch_offsets_max:,} offsets at most.",
            "",
            "| Invariant | Verdict | Checked | Violations |",
            "|---|---|---|---|",
            *(_row_of(check) for check in self.checks),
            "",
            "| Fault | Planned | Hit |",
            "|---|---|---|",
            *(
                f"| `{kind}` | {planned[kind]} | {self.kills.get(kind, 0)} |"
                for kind in sorted(planned | Counter(self.kills))
            ),
            "",
            "| Sent | Number |",
            "|---|---|",
            *(f"| {kind} | {count:,} |" for kind, count in self.events.items()),
            *(
                f"| transactions {outcome} | {count:,} |"
                for outcome, count in self.transactions.items()
            ),
        ]
        return "\n".join(lines) + "\n"


def read_git_commit() -> str:
    """Return the commit that runs; ``unknown`` outside of a repository."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],  # noqa: S607 (whichever git the user has)
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def _row_of(check: Check) -> str:
    verdict = check.verdict.value.replace("_", " ")
    if check.verdict is Verdict.NOT_APPLICABLE:
        return f"| `{check.name}` | {verdict}: {check.note} | | |"
    note = f" ({check.note})" if check.note else ""
    return (
        f"| `{check.name}` | {verdict}{note} | {check.checked:,} {check.unit} | "
        f"{check.violation_count:,} |"
    )
