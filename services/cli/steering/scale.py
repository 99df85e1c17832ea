"""``scale``: sets the bounds of a pipeline's scaling, and shows decisions.

Crash:
    The change is one commit. If the command dies before it, nothing has changed.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.arguments import (
    AsJson,
    DryRun,
    PipelineName,
    connected_home,
    pipeline_name,
)
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import UNCHANGED, say, say_json, say_table
from tallyweir.sinks.scaling.bounds import NOT_SCALED

if TYPE_CHECKING:
    from tallyweir.sinks.postgres.audit import RecordedDecision, Scaling


@command(
    "tallyweir scale departures --max-executors 8 --max-batch 1000000",
    "tallyweir scale departures",
    "tallyweir scale departures --off",
)
def scale(  # noqa: PLR0913 - its options
    pipeline: PipelineName,
    *,
    min_executors: Annotated[
        int | None, typer.Option(help="Least number of executors; 1 by default.")
    ] = None,
    max_executors: Annotated[
        int | None, typer.Option(help="Executors at most.")
    ] = None,
    min_batch: Annotated[
        int | None, typer.Option(help="Fewest offsets that a full batch reads.")
    ] = None,
    max_batch: Annotated[
        int | None, typer.Option(help="Offsets that a full batch reads, at most.")
    ] = None,
    off: Annotated[
        bool, typer.Option("--off", help="Turn scaling off and keep the present size.")
    ] = False,
    decisions: Annotated[
        int, typer.Option(min=0, help="How many decisions to show.")
    ] = 10,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Set between which bounds a pipeline scales itself, and show what it decided.

    Its driver follows new bounds within seconds and needs no restart. Executors are
    steered on a cluster, the batch size everywhere; what has no bounds is left alone.
    docs/scaling.md has the rules and the formula of every number.
    """
    from tallyweir.services.operate.steering.scaling_bounds import (
        bounds_told,
        change_bounds,
        parse_bounds,
    )
    from tallyweir.sinks.postgres import audit

    wanted = parse_bounds(
        executors=(min_executors, max_executors),
        batch_offsets=(min_batch, max_batch),
        off=off,
    )
    name = pipeline_name(pipeline)
    with connected_home("scale") as home:
        if off or wanted != NOT_SCALED:
            wanted = change_bounds(home, name, wanted, off=off, dry_run=dry_run)
        found = audit.read_scaling(home, name, limit=decisions)
    if as_json:
        say_json(_scaling_json(found))
        return
    if dry_run:
        say(f"It would be: {bounds_told(wanted)}. {UNCHANGED}")
    _say_scaling(found, bounds_told(found.bounds))


def _scaling_json(found: Scaling) -> dict[str, object]:
    return {
        "pipeline": found.pipeline,
        "bounds": asdict(found.bounds),
        "decisions": [asdict(decision) for decision in found.decisions],
    }


def _say_scaling(found: Scaling, told: str) -> None:
    say(f"Pipeline {found.pipeline}: {told}.")
    if found.decisions:
        say_table(
            ("decided", "executors", "batch", "backlog", "busy", "reason"),
            [_row(decision) for decision in found.decisions],
        )


def _row(decision: RecordedDecision) -> tuple[str, ...]:
    backlog_s, busy = decision.backlog_s, decision.busy
    return (
        decision.decided_at.isoformat(sep=" ", timespec="seconds"),
        _change(decision.executors_before, decision.executors),
        _change(decision.batch_offsets_before, decision.batch_offsets),
        "?" if backlog_s is None else f"{backlog_s:,.0f} s",
        "?" if busy is None else f"{busy:.0%}",
        f"{decision.because}: {decision.reason}",
    )


def _change(before: int | None, after: int | None) -> str:
    if after is None:
        return "-"
    if before in (None, after):
        return f"{after:,}"
    return f"{before:,} -> {after:,}"
