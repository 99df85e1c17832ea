"""``chaos`` and ``chaos-templates``: kill processes, and prove that nothing is lost.

``chaos`` breaks one pipeline in every way and counts the results; ``chaos-templates``
kills the drivers of ready pipelines and compares their tables with a calm run's.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.arguments import EndsWithJson
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say, say_json, say_table
from tallyweir.services.cli.signals import end_once_on_signals
from tallyweir.services.dev.chaos.plan import EventFormat
from tallyweir.sinks.protocol.errors import FatalError

if TYPE_CHECKING:
    from tallyweir.services.dev.chaos.chaos_report import ChaosReport
    from tallyweir.services.dev.chaos.plan import ChaosOptions
    from tallyweir.services.dev.chaos.templates.results import TemplateReport


_DATABASES_MAX = 8


@command(
    "tallyweir chaos --kills 10 --events 50000 --seed 7",
    "tallyweir chaos --kills 300 --events 1000000 --report chaos.md",
    "tallyweir chaos --kills 25 --databases 3 --format registry",
)
def chaos(  # noqa: PLR0913, PLR0917 (the options of a command)
    kills: Annotated[
        int, typer.Option(min=1, help="Total number of faults to inject.")
    ] = 10,
    events: Annotated[
        int, typer.Option(min=100, help="Different valid events to send.")
    ] = 50_000,
    seed: Annotated[
        int, typer.Option(help="Same seed, same events and same faults.")
    ] = 7,
    databases: Annotated[
        int,
        typer.Option(
            min=1, max=_DATABASES_MAX, help="Database servers: home and participants."
        ),
    ] = 1,
    event_format: Annotated[
        EventFormat,
        typer.Option(
            "--format", help="How events are written; registry has faults of its own."
        ),
    ] = EventFormat.AVRO,
    as_json: EndsWithJson = False,
    report: Annotated[
        Path | None, typer.Option(help="Write a page about the run to this file.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the run's files.")] = False,
) -> None:
    """Break a running pipeline in every way, and prove that each event counted once.

    Kafka, Postgres and the drivers are the run's own. They are killed, paused, started
    twice, cut off in mid-message and robbed of their checkpoints, while events come
    with repeats, broken ones and aborted transactions, and a reader looks at snapshots.
    Then all is held against what was sent. Exit code 0 only when every invariant holds.
    """
    from tallyweir.services.dev.chaos.chaos_report import read_git_commit
    from tallyweir.services.dev.chaos.chaos_run import run_chaos
    from tallyweir.services.dev.chaos.plan import ChaosOptions, write_plan
    from tallyweir.services.dev.chaos.workload import count_records

    started = time.monotonic()

    def tell(text: str) -> None:
        note(f"{time.monotonic() - started:7.1f} s  {text}")

    end_once_on_signals()
    options = ChaosOptions(
        kills=kills,
        events=events,
        seed=seed,
        databases=databases,
        event_format=event_format,
    )
    plan = write_plan(options, records=count_records(events))
    tell(f"seed {seed}, git {read_git_commit()}")
    tell(f"plan: {json.dumps(plan.as_json())}")
    result = run_chaos(options, tell, keep=keep)
    _say_report(result)
    if report is not None:
        report.write_text(result.as_markdown(dt.datetime.now(dt.UTC).date()), "utf-8")
    if as_json:
        say_json(result.as_json())
    if result.verdict != "ok":
        raise _not_proven(result)


def _say_report(report: ChaosReport) -> None:
    say_table(
        ("invariant", "verdict", "checked", "violations", "note"),
        [
            (
                check.name,
                check.verdict.value,
                f"{check.checked:,} {check.unit}",
                check.violation_count,
                check.note,
            )
            for check in report.checks
        ],
    )
    for check in report.checks:
        for violation in check.violations:
            say(f"  {check.name}: {violation}")
    kinds = ", ".join(f"{kind} {count}" for kind, count in report.kills.items())
    say(f"faults: {kinds or 'none'}")
    say("events: " + ", ".join(f"{k} {n:,}" for k, n in report.events.items()))
    recovery = report.recovery.as_json()
    say(
        f"recovery: p50 {recovery['p50']} s, p99 {recovery['p99']} s, "
        f"max {recovery['max']} s, {recovery['n']} deaths"
    )
    say(
        f"{report.batches:,} batches, {report.drivers:,} drivers, "
        f"{report.snapshots:,} snapshots, {report.seconds:.0f} s: {report.verdict}"
    )


def _not_proven(report: ChaosReport) -> FatalError:
    broken = [check.name for check in report.checks if check.violation_count]
    return FatalError(
        "CHAOS_NOT_PROVEN",
        saw=f"Broken: {', '.join(broken) or 'nothing, but no fault was injected'}.",
        why="An event was lost, doubled or fractured, or the run proves nothing.",
        fix=f"Run again with --keep and the same seed ({report.plan.options.seed}), "
        "and report it with the lines above.",
    )


@command(
    "tallyweir chaos-templates factory --kills 3 --events 3000",
    "tallyweir chaos-templates --kills 25 --report templates.md",
)
def chaos_templates(  # noqa: PLR0913, PLR0917 (the options of a command)
    names: Annotated[
        list[str] | None, typer.Argument(help="Templates; all without.")
    ] = None,
    kills: Annotated[
        int, typer.Option(min=1, help="Kills of drivers in mid-batch, per template.")
    ] = 25,
    events: Annotated[
        int, typer.Option(min=100, help="Different valid events, per template.")
    ] = 20_000,
    seed: Annotated[int, typer.Option(help="Same seed, same events and kills.")] = 7,
    as_json: EndsWithJson = False,
    report: Annotated[
        Path | None, typer.Option(help="Write a page about the run to this file.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the run's files.")] = False,
) -> None:
    """Kill each ready pipeline's drivers, and compare its tables with a calm run's.

    Kafka and Postgres are the run's own. A template's made-up events, with repeats and
    broken ones, are read twice: by an undisturbed driver, and by drivers that are
    killed in mid-batch. Result tables, state, timers, dead letters and outbox must
    be equal. Exit code 0 only when they are, for every template.
    """
    from tallyweir.services.dev.chaos.chaos_report import read_git_commit
    from tallyweir.services.dev.chaos.plan import ChaosOptions
    from tallyweir.services.dev.chaos.templates.results import as_markdown

    began = time.monotonic()

    def tell(text: str) -> None:
        note(f"{time.monotonic() - began:7.1f} s  {text}")

    end_once_on_signals()
    options = ChaosOptions(kills=kills, events=events, seed=seed, databases=1)
    git = read_git_commit()
    tell(f"seed {seed}, git {git}")
    reports = _run(names, options, tell, keep=keep)
    if report is not None:
        today = dt.datetime.now(dt.UTC).date()
        report.write_text(as_markdown(reports, options, git=git, today=today), "utf-8")
    if as_json:
        templates = [one.as_json() for one in reports]
        say_json({"seed": seed, "git": git, "templates": templates})
    if broken := [one.template for one in reports if one.verdict != "ok"]:
        raise FatalError(
            "CHAOS_NOT_PROVEN",
            saw=f"Tables of {', '.join(broken)} differ from those of an undisturbed "
            "run.",
            why="A crash changed the results.",
            fix=f"Run again with --keep and the same seed ({seed}), and report it with "
            "the lines above.",
        )


def _run(
    names: list[str] | None,
    options: ChaosOptions,
    tell: Callable[[str], None],
    *,
    keep: bool,
) -> list[TemplateReport]:
    """Do one trial after another; print the result of each."""
    from tallyweir.services.dev.chaos.templates.template_run import (
        kill_template,
        template_world,
    )
    from tallyweir.services.local.templates.template import (
        read_template,
        template_names,
    )

    wanted = [read_template(name).name for name in names or template_names()]
    reports = []
    with template_world(keep=keep) as world:
        for name in wanted:
            done = kill_template(name, options, world, tell)
            reports.append(done)
            say(str(done))
            for line in (*done.differences, *done.failed_checks):
                say(f"  {line}")
    return reports
