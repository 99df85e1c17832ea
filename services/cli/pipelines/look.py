"""``look``: says what a topic holds, and writes a pipeline for it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say, say_table

if TYPE_CHECKING:
    from tallyweir.services.look.look_report import LookReport
    from tallyweir.services.look.pipeline_proposal import Proposal

_RECORDS = 1_000


@command(
    "tallyweir look --topic orders",
    "tallyweir look --topic orders --kafka broker:9092 --all --output orders.yaml",
)
def look(  # noqa: PLR0913, PLR0917 (the options of a command)
    topic: Annotated[str, typer.Option(help="The topic.")],
    kafka: Annotated[
        str | None,
        typer.Option(help="host:port of Kafka [TALLYWEIR_KAFKA_BOOTSTRAP]."),
    ] = None,
    records: Annotated[
        int, typer.Option(min=1, help="How many records to read, about.")
    ] = _RECORDS,
    everything: Annotated[
        bool, typer.Option("--all", help="Read the whole topic, and count exactly.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="The pipeline file [TOPIC.yaml].")
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Show no values of records.")
    ] = False,
    schema: Annotated[
        list[str] | None,
        typer.Option(help="An Avro contract that may be in the topic; repeatable."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the pipeline file.")
    ] = False,
) -> None:
    """Say what a topic holds, and write a pipeline that reads it.

    It joins no consumer group, and commits nothing.
    """
    from tallyweir.services.local.embedded.extras import package_folder

    # The image of services has none.
    package_folder("pyarrow")
    from tallyweir.services.look.look import look_at, require_new
    from tallyweir.services.look.pipeline_proposal import pipeline_name
    from tallyweir.services.process.endpoints import find_kafka_bootstrap

    path = output or Path(f"{pipeline_name(topic)}.yaml")
    require_new(path, force=force)
    report = look_at(
        kafka or find_kafka_bootstrap(),
        topic,
        records=None if everything else records,
        schemas=schema or (),
        is_redacted=redact,
    )
    _show(report)
    if report.proposal is None:
        say("\nNo file was written.")
        raise typer.Exit(1)
    _write(report, report.proposal, path, kafka)


def _show(report: LookReport) -> None:
    from tallyweir.services.look.look_report import Table

    for part in report.parts():
        if isinstance(part, Table):
            say_table(part.columns, part.rows)
        else:
            say(part)


def _write(
    report: LookReport, proposal: Proposal, path: Path, kafka: str | None
) -> None:
    from tallyweir.schemas.pipeline.pipeline_file import load_pipeline
    from tallyweir.services.look.look import writing
    from tallyweir.services.look.pipeline_proposal import write_yaml
    from tallyweir.services.process.endpoints import KAFKA_VARIABLE, launcher

    with writing(path):
        path.write_text(write_yaml(proposal, report.read, path.parent), "utf-8")
    # What is proposed must run as it is.
    load_pipeline(path)
    server = f"{KAFKA_VARIABLE}={shlex.quote(kafka)} " if kafka else ""
    say(f"\nWrote {path}. Next:")
    say(f"  {server}{launcher()} run {shlex.quote(str(path))} --once")
