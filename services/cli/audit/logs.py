"""``logs``: shows the newest warnings and errors of a pipeline's drivers."""

from __future__ import annotations

from typing import Annotated

import typer

from tallyweir.services.cli.arguments import PipelineName, connected_home, pipeline_name
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say


@command("tallyweir logs departures", "tallyweir logs departures --batch 41")
def logs(
    pipeline: PipelineName,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Only lines of this batch.")
    ] = None,
    newest: Annotated[int, typer.Option(min=1, max=3_000, help="How many.")] = 100,
) -> None:
    """Show the newest warnings and errors of a pipeline's drivers, oldest first.

    Each with the batch that it is about, or that was at hand. The home database keeps
    3,000; everything else that a driver says is on its standard error only.
    """
    from tallyweir.sinks.postgres.records.driver_log import read_driver_log

    name = pipeline_name(pipeline)
    with connected_home("logs") as home:
        found = read_driver_log(home, name, sequence=batch, limit=newest)
    for line in reversed(found):
        said = " ".join(f"{key}={value}" for key, value in line.detail.items())
        at = line.at.isoformat(sep=" ", timespec="seconds")
        say(f"{at} {line.level} batch {line.sequence}: {line.event} {said}".rstrip())
