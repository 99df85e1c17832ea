"""``chaos-templates``: kills templates' drivers, and compares with calm runs."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.options import EndsWithJson
from tallyweir.services.cli.rendering import note, say, say_json
from tallyweir.services.cli.signals import end_once_on_signals
from tallyweir.sinks.protocol.errors import FatalError

if TYPE_CHECKING:
    from tallyweir.services.dev.chaos.templates.template_report import (
        TemplateOptions,
        TemplateReport,
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
    broken ones, are read twice: by a driver that nobody disturbs, and by drivers that
    are killed in mid-batch. Result tables, state, timers, dead letters and outbox must
    be equal. Exit code 0 only when they are, for every template.
    """
    from tallyweir.services.dev.chaos.chaos_report import read_git_commit
    from tallyweir.services.dev.chaos.templates.template_report import (
        TemplateOptions,
        as_markdown,
    )

    began = time.monotonic()

    def tell(text: str) -> None:
        note(f"{time.monotonic() - began:7.1f} s  {text}")

    end_once_on_signals()
    options = TemplateOptions(kills=kills, events=events, seed=seed)
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
    options: TemplateOptions,
    tell: Callable[[str], None],
    *,
    keep: bool,
) -> list[TemplateReport]:
    """Do one trial after another; print the result of each."""
    from tallyweir.services.dev.chaos.templates.template_run import kill_template
    from tallyweir.services.dev.chaos.templates.template_world import template_world
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
