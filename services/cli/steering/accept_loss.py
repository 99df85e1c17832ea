"""``accept-loss``: go on without rows of a result table that are gone.

Crash:
    The command accepts the loss in one commit. If it dies before the commit, nothing
    has changed. If it dies after the commit, the next call finds no loss and says so.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.options import PipelineName
from tallyweir.services.cli.pipeline_databases import pipeline_databases
from tallyweir.services.cli.pipeline_name import pipeline_name
from tallyweir.services.cli.rendering import say


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
    from tallyweir.services.process.endpoints import find_endpoints
    from tallyweir.sinks.postgres import steering
    from tallyweir.sinks.postgres.server.connection import connect

    name, databases = pipeline_name(pipeline), pipeline_databases(pipeline)
    request = steering.ActRequest(
        pipeline=name, kind="accept-loss", reason=reason, dry_run=dry_run
    )
    dsn = find_endpoints().home_dsn
    with connect(dsn, application_name="tallyweir accept-loss") as home:
        lost = steering.accept_loss(home, request, table, databases)
    say(lost.told())
    say(
        "Nothing was changed (--dry-run)."
        if dry_run
        else f"Written to the ledger. Pipeline {name} can start."
    )
