"""``doctor``: checks whether this machine is ready, and prints fixes."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say, say_json, use_rich

if TYPE_CHECKING:
    from tallyweir.services.cli.doctor.checks import Check

_NAME_WIDTH = 18


@command(
    "tallyweir doctor",
    "tallyweir doctor --alert-rules docker/observability/alerts.yaml",
)
def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of lines.")
    ] = False,
    alert_rules: Annotated[
        Path | None, typer.Option(help="Also check this file of alert rules.")
    ] = None,
) -> None:
    """Check Python, Java, jars, disk, Kafka and Postgres; each failure has its fix.

    Of Postgres it looks at the home and at each database of TALLYWEIR_DATABASES, as
    every start does. Starts no server and changes no data; a row that it tries in a
    table of a participant is prepared and rolled back. Of alert rules it looks whether
    they are understood, name pipelines that there are, and have channels that can be
    reached; it sends nothing. Exit code 0 when all is well, also with warnings, else 1.
    """
    from tallyweir.services.cli.doctor.checks import all_checks

    checks = []
    for check in all_checks(alert_rules):
        checks.append(check)
        if not as_json:
            say(f"{_mark(check)}  {check.name:<{_NAME_WIDTH}}  {check.saw}")
            if check.fix:
                say(f"{'':6}{'':<{_NAME_WIDTH}}  fix: {check.fix}")
    ok = all(check.ok for check in checks)
    if as_json:
        say_json({"ok": ok, "checks": [dataclasses.asdict(check) for check in checks]})
    if not ok:
        raise typer.Exit(1)


def _mark(check: Check) -> str:
    mark, color = "ok  ", "green"
    if not check.ok:
        mark, color = "FAIL", "red"
    elif check.is_warning:
        mark, color = "warn", "yellow"
    if not use_rich(sys.stdout):
        return mark
    return typer.style(mark, fg=color, bold=not check.ok)
