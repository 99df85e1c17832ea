"""``snapshot`` and ``restore``: keep a pipeline's state, and take it back.

Crash:
    Each command is one commit. If it dies before the commit, nothing has changed. If a
    restore is called again after its commit, it takes nothing more back.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tallyweir.services.cli.arguments import (
    AsJson,
    DryRun,
    PipelineName,
    Reason,
    connected_home,
    pipeline_name,
)
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import (
    UNCHANGED,
    example,
    say,
    say_done,
    say_json,
    say_table,
)

_Name = Annotated[str, typer.Argument(help="Name of the snapshot.")]


GROUP = typer.Typer(
    name="snapshot",
    help="Take, list and drop snapshots of a pipeline's state.",
    no_args_is_help=True,
    epilog=example(
        "tallyweir snapshot take departures before-v2 --reason 'release 42'",
        "tallyweir snapshot list departures",
    ),
)


@GROUP.command(
    epilog=example("tallyweir snapshot take departures before-v2 --reason 'release 42'")
)
def take(
    pipeline: PipelineName,
    name: _Name,
    reason: Annotated[str, typer.Option(help="Purpose of the snapshot.")],
    dry_run: DryRun = False,
) -> None:
    """Keep where the pipeline stands; a driver may work meanwhile.

    While a snapshot is there, the seen IDs that it needs are not forgotten.
    """
    from tallyweir.sinks.postgres import steering

    known = pipeline_name(pipeline)
    with connected_home("snapshot") as home:
        taken = steering.take_snapshot(
            home, known, name, reason=reason, dry_run=dry_run
        )
    say(f"Snapshot {name} of pipeline {known} is of batch {taken.sequence}.")
    say_done(
        f"To go back: tallyweir restore {known} {name} --reason 'why'", dry_run=dry_run
    )


@GROUP.command("list", epilog=example("tallyweir snapshot list departures"))
def list_all(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """List the snapshots of a pipeline, the oldest batch first."""
    from tallyweir.sinks.postgres import steering

    known = pipeline_name(pipeline)
    with connected_home("snapshot") as home:
        found = steering.list_snapshots(home, known)
    columns = ("name", "sequence", "watermark", "taken_at", "taken_by", "bytes")
    rows = [{**asdict(one), "definition": None} for one in found]
    if as_json:
        fields = (*columns, "reason")
        say_json(
            {
                "pipeline": known,
                "snapshots": [{name: row[name] for name in fields} for row in rows],
            }
        )
        return
    say_table(
        ("name", "batch", "watermark", "taken", "by", "bytes", "reason"),
        [[row[name] for name in (*columns, "reason")] for row in rows],
    )


@GROUP.command(epilog=example("tallyweir snapshot drop departures before-v2"))
def drop(pipeline: PipelineName, name: _Name, dry_run: DryRun = False) -> None:
    """Forget a snapshot, and with the driver's next start the IDs kept for it."""
    from tallyweir.sinks.postgres import steering

    known = pipeline_name(pipeline)
    with connected_home("snapshot") as home:
        dropped = steering.drop_snapshot(home, known, name, dry_run=dry_run)
    if dry_run:
        say(f"Snapshot {name} of batch {dropped.sequence} can be dropped. {UNCHANGED}")
        return
    say(f"Snapshot {name} of batch {dropped.sequence} is dropped.")


@command(
    "tallyweir restore departures before-v2 --reason 'v2 counted twice' \\",
    "    --dry-run",
    "tallyweir restore departures before-v2 --reason 'v2 counted twice'",
)
def restore(
    pipeline: PipelineName,
    name: _Name,
    reason: Reason,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be undone.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take a pipeline back to a snapshot; what is taken back is read from Kafka again.

    Refused if Kafka does not hold it any more. A driver at work goes on from there by
    itself. What the relay has sent stays sent: it is sent again under the same IDs.
    """
    from tallyweir.services.operate.steering.position_acts import (
        restore_snapshot,
        restored_told,
    )
    from tallyweir.services.process.endpoints import find_endpoints

    endpoints = find_endpoints()
    known = pipeline_name(pipeline)
    with connected_home("restore") as home:
        restored = restore_snapshot(
            home,
            endpoints.kafka_bootstrap,
            known,
            name,
            reason=reason,
            dry_run=dry_run,
        )
    if as_json:
        say_json({"pipeline": known, "dry_run": dry_run, **asdict(restored)})
        return
    say("\n".join(restored_told(restored)))
    say_done(
        f"Pipeline {known} reads on there; a driver at work does so by itself.",
        dry_run=dry_run,
    )
