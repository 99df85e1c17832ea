"""``batch``: a pipeline over files or ranges of a topic, published once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from services.cli.rendering import example
from sinks.protocol.batch_run import Disposition


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        epilog=example(
            "tallyweir batch orders.yaml --input may.csv --run orders-may",
            "tallyweir batch orders.yaml --input a.jsonl --input b.avro --run june",
        )
    )(batch)


def batch(
    pipeline: Annotated[Path, typer.Argument(help="Pipeline file.")],
    run: Annotated[
        str, typer.Option(help="The run's name; it is published once in the pipeline.")
    ],
    source: Annotated[
        list[Path] | None,
        typer.Option("--input", help="A .csv, .jsonl, .parquet or .avro file."),
    ] = None,
    offsets: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC:PARTITION:FROM-UNTIL", help="A range of a topic."),
    ] = None,
    disposition: Annotated[
        Disposition, typer.Option(help="What becomes of what is in the tables.")
    ] = Disposition.APPEND,
) -> None:
    """Run a pipeline over bounded input, which becomes visible in one transaction.

    Give --input for each file, or --offsets for each partition of a topic.

    The same command again does what is left to do, and nothing when all is done. A
    driver of the pipeline may run meanwhile: it waits for the run and goes on.
    """
    from services.endpoints import child_environment, resolve_endpoints

    environment = child_environment(resolve_endpoints())
    arguments = [sys.executable, "-m", "spark_jobs.batch", str(pipeline)]
    arguments += [f"--input={path}" for path in source or ()]
    arguments += [f"--offsets={one}" for one in offsets or ()]
    arguments += [f"--run={run}", f"--disposition={disposition.value}"]
    if "--debug" in sys.argv:
        arguments.append("--debug")
    os.execve(sys.executable, arguments, environment)  # noqa: S606 - no shell
