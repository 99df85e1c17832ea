"""``samples``: shows the newest rows of each step of a pipeline."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.arguments import AsJson, connected_home, pipeline_name
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say, say_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallyweir.sinks.postgres.audit import KeptSample
    from tallyweir.sinks.protocol.samples import SampledRow


@command(
    "tallyweir samples departures", "tallyweir samples departures --step stage --json"
)
def samples(
    pipeline: Annotated[
        str, typer.Argument(help="Name of a pipeline, or its pipeline file.")
    ],
    step: Annotated[
        str | None, typer.Option(help="Only samples of this step of the job graph.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest rows of each step, with their place in Kafka.

    Kept where the pipeline file has monitor.samples, without what monitor.redact
    names. Exit code 1 when there are none.
    """
    from tallyweir.services.operate.pipeline_json import samples_json
    from tallyweir.sinks.postgres import audit

    name = pipeline_name(pipeline)
    with connected_home("samples") as home:
        found = audit.read_samples(home, name, step=step)
    if as_json:
        say_json(samples_json(name, found))
    else:
        for line in (line for one in found.steps for line in _told(one)):
            say(line)
    if not found.steps:
        note(
            f"{name} keeps up to {found.limit} rows of each step; no row has passed "
            "yet."
            if found.limit
            else f"{name} keeps no rows; monitor: {{samples: 5}} in its file keeps "
            "the newest of each step."
        )
        raise typer.Exit(1)


def _told(sample: KeptSample) -> Iterator[str]:
    what = sample.step if sample.output is None else f"{sample.step} {sample.output}"
    at = sample.published_at.isoformat(sep=" ", timespec="seconds")
    hidden = f", redacted: {', '.join(sample.redacted)}" if sample.redacted else ""
    yield f"{what}, batch {sample.sequence} of {at}{hidden}"
    for row in sample.rows:
        yield f"  {' '.join(_parts(row))}"


def _parts(row: SampledRow) -> Iterator[str]:
    if row.place is not None:
        yield f"{row.place.topic}[{row.place.partition}] {row.offset}"
    if row.reason is not None:
        yield row.reason
    for name, text in row.fields:
        yield f"{name}={'null' if text is None else _printable(text)}"
    if row.left_out:
        yield f"and {row.left_out} more"


def _printable(text: str) -> str:
    """Quote text with control characters or blanks."""
    is_plain = text.isprintable() and text and " " not in text
    return text if is_plain else json.dumps(text, ensure_ascii=not text.isprintable())
