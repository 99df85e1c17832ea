"""``run``: runs a pipeline's driver in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tallyweir.services.cli.command import command


@command(
    "tallyweir run departures.yaml",
    "tallyweir run departures.yaml --once",
    "tallyweir run departures.yaml --profile streaming",
)
def run(
    pipeline: Annotated[Path, typer.Argument(help="Pipeline file.")],
    once: Annotated[
        bool, typer.Option("--once", help="Stop at the end of the topic.")
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Settings of Spark that go together: memory, cpu, streaming."
        ),
    ] = None,
) -> None:
    """Run a pipeline until it is stopped; each event counts once in effect.

    SIGTERM and Ctrl-C end it: the batch at hand is published or dropped whole, and the
    next start goes on behind it. A second Ctrl-C does not wait for that batch. Starting
    a pipeline that runs already takes it over.
    """
    from tallyweir.services.cli.signals import become
    from tallyweir.services.process.endpoints import (
        child_environment,
        resolve_endpoints,
    )

    environment = child_environment(resolve_endpoints())
    if profile is not None:
        environment["TALLYWEIR_PROFILE"] = profile
    arguments = ["-m", "tallyweir.spark_jobs", str(pipeline)]
    if once:
        arguments.append("--once")
    if "--debug" in sys.argv:
        arguments.append("--debug")
    become(arguments, environment)
