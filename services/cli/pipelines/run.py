"""``run`` and ``batch``: run a pipeline on its topics, or once over bounded input."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from tallyweir.services.cli.command import command
from tallyweir.sinks.protocol.batch_run import Disposition


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


_FLAGS = ("-h", "--help")


class _Batch(TyperCommand):
    """Takes several files after one ``--input``, as a shell expands a glob."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer hides its type
        return super().parse_args(ctx, list(_each_with_its_option(args)))


def _each_with_its_option(arguments: Sequence[str]) -> Iterator[str]:
    """Put ``--input`` before each file; the first bare argument is the pipeline."""
    has_pipeline = is_input = is_value = False
    for argument in arguments:
        is_option = argument.startswith("-") and not is_value
        if is_input and has_pipeline and not is_option and not is_value:
            yield "--input"
        elif not is_option and not is_value:
            has_pipeline, is_input = True, False
        yield argument
        if is_option:
            is_input = argument.partition("=")[0] == "--input"
        is_value = is_option and "=" not in argument and argument not in _FLAGS


@command(
    "tallyweir batch orders.yaml --input may.csv --run orders-may",
    "tallyweir batch orders.yaml --run june --input june/*.jsonl more.avro",
    cls=_Batch,
)
def batch(
    pipeline: Annotated[Path, typer.Argument(help="Pipeline file.")],
    run: Annotated[
        str, typer.Option(help="The run's name; it is published once in the pipeline.")
    ],
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--input",
            metavar="FILE...",
            help="Files that end in .csv, .jsonl, .parquet or .avro, or patterns.",
        ),
    ] = None,
    offsets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC:PARTITION:FROM-UNTIL", help="A range of offsets of a topic."
        ),
    ] = None,
    disposition: Annotated[
        Disposition,
        typer.Option(help="What to do with rows that are already in the tables."),
    ] = Disposition.APPEND,
) -> None:
    """Run a pipeline over bounded input, which becomes visible in one transaction.

    Give --input with files or patterns, which are read in this order, those of a
    pattern by their names; or --offsets for each partition of a topic.

    The same command again does what is left to do, and nothing when all is done. A
    driver of the pipeline may run meanwhile: it waits for the run and goes on.
    """
    from tallyweir.services.cli.signals import become
    from tallyweir.services.process.endpoints import (
        child_environment,
        resolve_endpoints,
    )

    environment = child_environment(resolve_endpoints())
    arguments = ["-m", "tallyweir.spark_jobs.batch", str(pipeline)]
    arguments += [f"--input={path}" for path in source or ()]
    arguments += [f"--offsets={one}" for one in offsets or ()]
    arguments += [f"--run={run}", f"--disposition={disposition.value}"]
    if "--debug" in sys.argv:
        arguments.append("--debug")
    become(arguments, environment)
