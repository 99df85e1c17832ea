"""Reports the outcome of trials, for programs and as a page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    """The user's options of the trials.

    Attributes:
        kills: Number of kills for each template.
        events: Number of different valid events for each template.
        seed: Decides events and kills.
    """

    kills: int
    events: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateReport:
    """A finished trial of one template.

    Attributes:
        template: Its name.
        kills: Number of drivers killed in mid-batch.
        messages: Number of messages in the topic, with repeats and broken ones.
        undisturbed_batches: Number of batches of the undisturbed run.
        killed_batches: Number of batches of the killed run.
        rows: Number of rows compared, by table.
        differences: The differences between the two runs' tables, a line each.
        failed_checks: Checks of ``verify`` that failed in either run.
        seconds: Duration of the whole trial.
    """

    template: str
    kills: int
    messages: int
    undisturbed_batches: int
    killed_batches: int
    rows: dict[str, int]
    differences: tuple[str, ...]
    failed_checks: tuple[str, ...]
    seconds: float

    @property
    def verdict(self) -> str:
        """``ok`` or ``failed``; runs without any row have failed."""
        is_bad = self.differences or self.failed_checks or not sum(self.rows.values())
        return "failed" if is_bad else "ok"

    def as_json(self) -> dict[str, object]:
        """Return plain values."""
        return {
            "verdict": self.verdict,
            **asdict(self),
            "seconds": round(self.seconds, 1),
        }

    def __str__(self) -> str:
        return (
            f"{self.template}: {self.verdict}, {self.kills} kills, "
            f"{self.killed_batches} batches beside {self.undisturbed_batches}, "
            f"{sum(self.rows.values()):,} rows compared, {self.seconds:.0f} s"
        )


def as_markdown(
    reports: Sequence[TemplateReport],
    options: TemplateOptions,
    *,
    git: str,
    today: dt.date,
) -> str:
    """Return a page that says what was run and how it ended."""
    verdict = "ok" if all(one.verdict == "ok" for one in reports) else "failed"
    command = (
        f"./tallyweir chaos-templates {' '.join(one.template for one in reports)} "
        f"--kills {options.kills} --events {options.events} --seed {options.seed}"
    )
    lines = [
        f"# Ready pipelines under kills, {today:%Y-%m-%d}: {verdict}",
        "",
        f"`{command}`, at commit {git}, {sum(one.seconds for one in reports):,.0f} s.",
        "",
        "| Template | Verdict | Kills | Messages | Batches | Calm | Rows | Differ |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| `{one.template}` | {one.verdict} | {one.kills} | {one.messages:,} | "
            f"{one.killed_batches} | {one.undisturbed_batches} | "
            f"{sum(one.rows.values()):,} | {len(one.differences)} |"
            for one in reports
        ),
        "",
        "| Template | Table | Rows |",
        "|---|---|---|",
        *(
            f"| `{one.template}` | `{table}` | {count:,} |"
            for one in reports
            for table, count in one.rows.items()
            if count
        ),
        *_found(reports),
    ]
    return "\n".join(lines) + "\n"


def _found(reports: Sequence[TemplateReport]) -> list[str]:
    found = [
        f"- `{one.template}`: {line}"
        for one in reports
        for line in (*one.differences, *one.failed_checks)
    ]
    return ["", *found] if found else []
