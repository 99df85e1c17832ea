"""``pause`` and ``resume``: stop a pipeline's publishing for a while.

Crash:
    Each command is one commit. If it dies before the commit, nothing has changed. If it
    dies after the commit, the next call reports that it is done.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.home import connected_home
from tallyweir.services.cli.options import DryRun, PipelineName
from tallyweir.services.cli.pipeline_name import pipeline_name
from tallyweir.services.cli.rendering import say

_UNCHANGED = "Nothing was changed (--dry-run)."


@command("tallyweir pause departures --reason 'airports reload until 10:00'")
def pause(
    pipeline: PipelineName,
    reason: Annotated[
        str, typer.Option(help="Why, and until when; the ledger keeps it.")
    ],
    dry_run: DryRun = False,
) -> None:
    """Let nothing of a pipeline be published until `resume`, wherever its driver runs.

    A driver at work drops the batch at hand whole and waits; it need not answer.
    What comes meanwhile waits in Kafka: watch its retention.
    """
    from tallyweir.sinks.postgres import steering

    name = pipeline_name(pipeline)
    with connected_home("pause") as home:
        paused = steering.pause(home, name, reason=reason, dry_run=dry_run)
    if paused is None:
        say(f"Pipeline {name} can be paused. {_UNCHANGED}")
        return
    say(
        f"Pipeline {name} is paused after batch {paused.last_sequence}. "
        f"It goes on with: tallyweir resume {name}"
    )


@command("tallyweir resume departures")
def resume(pipeline: PipelineName, dry_run: DryRun = False) -> None:
    """End a pause, or call off a drain: a driver that waits goes on within seconds."""
    from tallyweir.sinks.postgres import steering

    name = pipeline_name(pipeline)
    with connected_home("resume") as home:
        ended = steering.resume(home, name, dry_run=dry_run)
    say(f"Pipeline {name} was {ended.told()}.")
    say(_UNCHANGED if dry_run else "It goes on; a driver that waits claims an epoch.")
