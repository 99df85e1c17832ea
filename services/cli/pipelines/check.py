"""``check``: runs the cases that stand beside a pipeline file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tallyweir.services.cli.command import command


@command("tallyweir check orders.yaml")
def check(
    pipeline: Annotated[Path, typer.Argument(help="Pipeline file.")],
) -> None:
    """Run the cases of orders.check.yaml: given records, expected rows and outcomes.

    The records pass through the code of a driver, into databases that are thrown away.
    It needs no Kafka, no home and no network. The exit code is 1 if a case fails.
    """
    from tallyweir.services.cli.signals import become
    from tallyweir.services.process.endpoints import scratch_environment

    arguments = ["-m", "tallyweir.spark_jobs.check", str(pipeline)]
    if "--debug" in sys.argv:
        arguments.append("--debug")
    become(arguments, scratch_environment())
