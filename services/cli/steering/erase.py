"""``erase`` and ``erasures``: remove events for good, and list erasures.

Crash:
    An erasure is one commit. If the command dies before the commit, nothing has
    changed. If it dies after the commit, the next call finds nothing more to erase.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tallyweir.services.cli.arguments import PipelineName, connected_home, pipeline_name
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say, say_done, say_table

_Where = Annotated[
    tuple[str, str] | None,
    typer.Option(
        help="A table of the pipeline and an SQL condition on its rows.",
        metavar="TABLE CONDITION",
    ),
]
_Again = Annotated[
    Path | None,
    typer.Option(
        help="The output of `erasures --json`, to erase again after a restore.",
        exists=True,
    ),
]


@command(
    "tallyweir erase orders --id 7f0c --reason 'request 4711'",
    "tallyweir erase orders --where orders \"customer = 'c-19'\" "
    "--reason 'request 4711' --dry-run",
)
def erase(  # noqa: PLR0913, PLR0917 - each is an option
    pipeline: PipelineName,
    reason: Annotated[
        str, typer.Option(help="Why; the ledger keeps it, so leave out personal names.")
    ],
    event_id: Annotated[
        list[str] | None,
        typer.Option("--id", help="A producer's ID; may be given several times."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="The events' ce_source, if the pipeline's IDs are ce_id."),
    ] = None,
    where: _Where = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="A key of functions' state, as `state` takes it."),
    ] = None,
    again: _Again = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be erased.")
    ] = False,
) -> None:
    """Erase events from results, side tables, outbox and state, in one transaction.

    They do not come back: not by a producer's repeat, not when their offsets are read
    again. Aggregates of windows stay. A driver at work drops the batch at hand and
    goes on by itself.
    """
    from tallyweir.services.operate.steering.erasure import erase_events, erasure_told
    from tallyweir.sinks.postgres import steering

    name = pipeline_name(pipeline)
    act = steering.ActRequest(
        pipeline=name, kind="erase", reason=reason, dry_run=dry_run
    )
    receipt = steering.parse_receipt(name, again.read_text("utf-8")) if again else None
    with connected_home("erase") as home:
        erasure = erase_events(
            home,
            act,
            ids=event_id or (),
            source=source,
            where=where,
            keys=key or (),
            receipt=receipt,
        )
    say("\n".join(erasure_told(name, erasure)))
    say_done(
        f"Keep the receipt apart from the database's backups: "
        f"tallyweir erasures {name} --json",
        dry_run=dry_run,
    )


@command("tallyweir erasures orders --json > erased.json")
def erasures(
    pipeline: PipelineName,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the receipt: tombstones, no names.")
    ] = False,
) -> None:
    """List what was erased, or print the receipt that `erase --again` takes."""
    from tallyweir.sinks.postgres import steering

    name = pipeline_name(pipeline)
    with connected_home("erasures") as home:
        tombs = steering.read_tombs(home, name)
        done = steering.read_erasures(home, name)
    if as_json:
        say(steering.format_receipt(name, tombs))
        return
    if not done:
        note(f"Nothing of pipeline {name} was erased.")
        return
    columns = ("epoch", "done_at", "done_by", "reason", "detail")
    say_table(columns, [[act[column] for column in columns] for act in done])
