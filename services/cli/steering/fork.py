"""``fork``, ``diff``, ``switch``, ``discard``: run a new version next to the old one.

Crash:
    All commands but ``diff`` are one commit each. If a command dies before the commit,
    nothing has changed. If it dies after the commit, the next call reports that it is
    done.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tallyweir.services.cli.arguments import (
    AsJson,
    DryRun,
    Reason,
    connected_home,
    pipeline_name,
)
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say, say_done, say_json

_Pipeline = Annotated[
    str, typer.Argument(help="Name of the pipeline in front, or its YAML file.")
]
_New = Annotated[str, typer.Argument(help="Name of the fork, or its YAML file.")]


@command(
    "tallyweir fork orders orders-2 --empty orders_by_hour "
    "--reason 'orders by half hour'"
)
def fork(
    pipeline: _Pipeline,
    new: _New,
    reason: Reason,
    empty: Annotated[
        list[str] | None,
        typer.Option(help="A table that begins empty, because its definition differs."),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Let a new pipeline go on from where another stands, in shadow tables.

    The pipeline file of the new one has its name, and the tables that readers know.
    The other pipeline is not stopped.
    """
    from tallyweir.services.operate.steering.act_reports import fork_told
    from tallyweir.sinks.postgres import steering

    request = steering.ActRequest(
        pipeline=pipeline_name(pipeline), kind="fork", reason=reason, dry_run=dry_run
    )
    with connected_home("fork") as home:
        made = steering.fork(home, request, pipeline_name(new), empty=empty or ())
    say("\n".join(fork_told(made)))
    say_done(
        f"Run it with a file of the name {made.pipeline} with the tables as "
        f"before; then: tallyweir diff {made.of} {made.pipeline}",
        dry_run=dry_run,
    )


@command("tallyweir diff orders orders-2")
def diff(
    pipeline: _Pipeline,
    new: _New,
    output: Annotated[
        str | None,
        typer.Option(help="Compare only this table, by the name that readers use."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare a pipeline with its fork, over what both have read and settled.

    Exit code 1 when an output differs.
    """
    from tallyweir.sinks.postgres import steering

    front, shadowing = pipeline_name(pipeline), pipeline_name(new)
    with connected_home("diff") as home:
        found = steering.diff(home, front, shadowing)
    found = tuple(one for one in found if output in {None, one.table})
    if as_json:
        say_json({"outputs": [asdict(one) for one in found]})
    for one in () if as_json else found:
        note = f" ({one.note})" if one.note else ""
        say(
            f"{one.table}: {one.equal} rows equal, {one.different} different, "
            f"{one.only_front} only in {front}, {one.only_shadow} only in "
            f"{shadowing}{note}"
        )
        for sample in one.samples:
            say(f"  {sample['key']}: {sample['front']} -> {sample['shadow']}")
    if not all(one.is_equal for one in found):
        raise typer.Exit(1)


@command("tallyweir switch orders orders-2 --reason 'compared for a day'")
def switch(
    pipeline: _Pipeline,
    new: _New,
    reason: Reason,
    dry_run: DryRun = False,
) -> None:
    """Let a pipeline and its fork change places: readers find the fork's rows.

    Both are fenced by it and go on where they stand, each under its own name. Called
    with the two exchanged, it takes that back.
    """
    from tallyweir.services.operate.steering.act_reports import switch_told
    from tallyweir.sinks.postgres import steering

    front, shadowing = pipeline_name(pipeline), pipeline_name(new)
    request = steering.ActRequest(
        pipeline=front, kind="switch", reason=reason, dry_run=dry_run
    )
    with connected_home("switch") as home:
        done = steering.switch(home, request, shadowing)
    say("\n".join(switch_told(done, front, shadowing)))
    say_done(
        "Drivers of both end and find their tables at the next start. Back again: "
        f"tallyweir switch {shadowing} {front}",
        dry_run=dry_run,
    )


@command(
    "tallyweir discard orders-2 --reason 'half hours are too fine' --dry-run",
    "tallyweir discard orders-2 --reason 'half hours are too fine'",
)
def discard(
    pipeline: Annotated[
        str,
        typer.Argument(help="Name of the pipeline in the shadow, or its YAML file."),
    ],
    reason: Annotated[
        str, typer.Option(help="Why; kept after everything else is deleted.")
    ],
    dry_run: DryRun = False,
) -> None:
    """Get rid of a fork, or after a switch of the former version, for good.

    Its shadow tables go and all that is kept of it, but for a note. A pipeline whose
    tables readers find is refused.
    """
    from tallyweir.services.operate.steering.act_reports import discard_told
    from tallyweir.sinks.postgres import steering

    request = steering.ActRequest(
        pipeline=pipeline_name(pipeline),
        kind="discard",
        reason=reason,
        dry_run=dry_run,
    )
    with connected_home("discard") as home:
        done = steering.discard(home, request)
    say("\n".join(discard_told(done)))
    say_done(
        "Its driver ends by itself. A pipeline of that name runs again only "
        "after a new fork under it.",
        dry_run=dry_run,
    )
