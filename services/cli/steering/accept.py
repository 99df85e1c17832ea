"""``accept-gap`` and ``accept-loss``: go on without records or rows that are gone.

Crash:
    Each command is one commit. If it dies before the commit, nothing has changed. If it
    dies after the commit, the next call finds nothing lost and says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.arguments import (
    PipelineName,
    connected_home,
    pipeline_databases,
    pipeline_name,
)
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say, say_done

if TYPE_CHECKING:
    from tallyweir.sinks.postgres.audit import RetentionGap


@command(
    "tallyweir accept-gap departures --reason 'outage of 3 May, replayed by B'",
    "tallyweir accept-gap departures --reason 'what would be lost' --dry-run",
)
def accept_gap(
    pipeline: PipelineName,
    reason: Annotated[
        str, typer.Option(help="Why the loss is acceptable; the ledger keeps it.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what is lost.")
    ] = False,
) -> None:
    """Write offsets that retention deleted unread to the ledger, and move past them.

    Refused when nothing is lost. The pipeline starts at the log's start afterwards.
    """
    from tallyweir.services.process.endpoints import find_endpoints
    from tallyweir.sinks.kafka_admin import KafkaAdmin
    from tallyweir.sinks.postgres import audit

    endpoints = find_endpoints()
    name = pipeline_name(pipeline)
    with connected_home("accept-gap") as home:
        topics = audit.read_source(home, name).topics
        broker = KafkaAdmin(endpoints.kafka_bootstrap, *topics).read_positions()
        if dry_run:
            gaps = audit.find_gaps(home, name, broker)
        else:
            gaps = audit.accept_gaps(home, name, broker, reason=reason)
    for gap in gaps:
        say(_tell(gap))
    say_done(f"Written to the ledger. Pipeline {name} can start.", dry_run=dry_run)


def _tell(gap: RetentionGap) -> str:
    before = (
        ""
        if gap.event_time_before is None
        else f"; the newest event before them happened at {gap.event_time_before}"
    )
    # Count offsets: compaction and transactions leave offsets without a record.
    return f"lost: {gap.lost}, up to {gap.lost.length:,} records{before}"


@command(
    "tallyweir accept-loss orders paid_orders --reason 'dropped by mistake'",
    "tallyweir accept-loss orders paid_orders --reason 'look first' --dry-run",
)
def accept_loss(
    pipeline: PipelineName,
    table: Annotated[str, typer.Argument(help="The lost result table.")],
    reason: Annotated[
        str, typer.Option(help="Why the loss is acceptable; the ledger keeps it.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what is lost.")
    ] = False,
) -> None:
    """Write to the ledger that the rows of a result table are given up.

    Refused when nothing is lost. The next start makes the table again; verify names
    the loss instead of looking for the rows.
    """
    from tallyweir.sinks.postgres import steering

    name, databases = pipeline_name(pipeline), pipeline_databases(pipeline)
    request = steering.ActRequest(
        pipeline=name, kind="accept-loss", reason=reason, dry_run=dry_run
    )
    with connected_home("accept-loss") as home:
        lost = steering.accept_loss(home, request, table, databases)
    say(lost.told())
    say_done(f"Written to the ledger. Pipeline {name} can start.", dry_run=dry_run)
