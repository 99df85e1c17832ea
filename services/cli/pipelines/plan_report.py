"""Prints plans and versions of pipelines for people."""

from __future__ import annotations

from collections.abc import Sequence

from tallyweir.services.cli.rendering import say, say_table
from tallyweir.sinks.postgres.versions.pipeline_versions import PipelineVersion
from tallyweir.sinks.postgres.versions.version_plan import PlanVerdict, VersionPlan

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def say_plan(plan: VersionPlan) -> None:
    """Print the verdict, the differences, the fates of state, and the fixes."""
    say(f"{plan.pipeline}: {plan.verdict.value}")
    if not plan.changes:
        say("Nothing changes.")
    for change in plan.changes:
        told = {
            "added": _short(change.after),
            "removed": _short(change.before),
            "changed": f"{_short(change.before)} -> {_short(change.after)}",
        }[change.kind]
        say(f"  {_SIGNS[change.kind]} {change.what}: {told}")
    fates = plan.reckoning.fates
    if fates:
        rows = [(one.subject, one.state, one.fate.value, one.why) for one in fates]
        say_table(("OF", "STATE", "BECOMES", "WHY"), rows)
    for statement in plan.ddl:
        say(f"  SQL {' '.join(statement.split())}")
    for verdict in (
        PlanVerdict.INCOMPATIBLE,
        PlanVerdict.NEEDS_MIGRATION,
        PlanVerdict.COMPATIBLE,
    ):
        for finding in plan.of(verdict):
            code = f" {finding.code}" if finding.code else ""
            say(f"{verdict.value}{code}: {finding.subject}: {finding.saw}")
            say(f"  why: {finding.why}")
            if finding.fix:
                say(f"  fix: {finding.fix}")


def say_versions(versions: Sequence[PipelineVersion]) -> None:
    """Print versions, the newest first."""
    say_table(
        ("VERSION", "AFTER BATCH", "SINCE", "BY", "BACK TO", "REASON"),
        [
            (
                f"{one.version}{' *' if one is versions[0] else ''}",
                one.from_sequence,
                one.made_at.isoformat(sep=" ", timespec="seconds"),
                one.made_by,
                one.rolls_back_to or "-",
                one.reason,
            )
            for one in versions
        ],
    )


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 1]}…"


#: Most characters of a value; the JSON has all of them.
_SHOWN_MAX = 60
