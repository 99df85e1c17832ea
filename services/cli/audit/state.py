"""``state``: shows keyed state and timers of a pipeline for one key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tallyweir.services.cli.arguments import AsJson, connected_home, pipeline_name
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say_json, say_table

if TYPE_CHECKING:
    from tallyweir.sinks.postgres.audit import KeyReport


@command(
    "tallyweir state factory press-7",
    "tallyweir state factory '[\"press-7\", 3]' --json",
)
def state(
    pipeline: Annotated[
        str, typer.Argument(help="Name of a pipeline, or its pipeline file.")
    ],
    key: Annotated[
        str, typer.Argument(help="The key; a JSON array if it has several columns.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show the state and the timers that a pipeline keeps for a key.

    Exit code 1 when it keeps nothing.
    """
    from tallyweir.sinks.postgres import audit

    name = pipeline_name(pipeline)
    with connected_home("state") as home:
        report = audit.read_key(home, name, key)
    if as_json:
        say_json({"pipeline": name, "state": report.state, "timers": report.timers})
    else:
        _say(report)
    if not report.state and not report.timers:
        note(f"{name} keeps nothing for {key}.")
        raise typer.Exit(1)


def _say(report: KeyReport) -> None:
    if report.state:
        _say_rows(
            report.state,
            ("output_table", "name", "entry", "value", "expires_at", "sequence"),
        )
    if report.timers:
        _say_rows(
            report.timers, ("output_table", "name", "clock", "fires_at", "sequence")
        )


def _say_rows(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    say_table(columns, [[_cell(row[column]) for column in columns] for row in rows])


def _cell(value: object) -> object:
    return "-" if value in {None, ""} else value
