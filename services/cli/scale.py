"""``scale``: how far a pipeline may be scaled, and what was decided.

Crash:
    One commit. A command that died before it changed nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.pipeline_name import pipeline_name
from services.cli.rendering import example, say, say_json, say_table
from sinks.protocol.errors import ConfigurationError
from sinks.scaling.bounds import NOT_SCALED, Bounds, Range, parse_range

if TYPE_CHECKING:
    from sinks.postgres.audit import RecordedDecision, Scaling

#: The least that a batch may have where nobody says: the driver stages less itself.
_BATCH_LEAST = 20_000


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(
        epilog=example(
            "tallyweir scale departures --max-executors 8 --max-batch 1000000",
            "tallyweir scale departures",
            "tallyweir scale departures --off",
        )
    )(scale)


def scale(  # noqa: PLR0913 - its options
    pipeline: Annotated[
        str, typer.Argument(help="Name of a pipeline, or its YAML file.")
    ],
    *,
    min_executors: Annotated[
        int | None, typer.Option(help="Executors at least; 1 if not given.")
    ] = None,
    max_executors: Annotated[
        int | None, typer.Option(help="Executors at most.")
    ] = None,
    min_batch: Annotated[
        int | None, typer.Option(help="What a full batch reads at least.")
    ] = None,
    max_batch: Annotated[
        int | None, typer.Option(help="What a full batch reads at most, in offsets.")
    ] = None,
    off: Annotated[
        bool, typer.Option("--off", help="Leave the pipeline as it is now.")
    ] = False,
    decisions: Annotated[
        int, typer.Option(min=0, help="How many decisions to show.")
    ] = 10,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on one line.")
    ] = False,
) -> None:
    """Set between which bounds a pipeline scales itself, and show what it decided.

    Its driver follows new bounds within seconds and needs no restart. Executors are
    steered on a cluster, the batch size everywhere; what has no bounds is left alone.
    docs/scaling.md has the rules and the formula of every number.
    """
    from services.endpoints import resolve_home_dsn
    from sinks.postgres import audit, steering
    from sinks.postgres.connection import connect

    wanted = Bounds(
        executors=parse_range(
            "executors", least=min_executors, most=max_executors, lowest=1
        ),
        batch_offsets=parse_range(
            "offsets of a batch", least=min_batch, most=max_batch, lowest=_BATCH_LEAST
        ),
    )
    if off and wanted != NOT_SCALED:
        raise ConfigurationError(
            "SCALING_BOUNDS",
            saw="There are bounds, and --off.",
            why="One sets bounds and the other removes them.",
            fix="Leave one of them out.",
        )
    name = pipeline_name(pipeline)
    with connect(resolve_home_dsn(), application_name="tallyweir scale") as home:
        if off:
            steering.end_scaling(home, name, dry_run=dry_run)
        elif wanted != NOT_SCALED:
            wanted = steering.set_bounds(home, name, wanted, dry_run=dry_run)
        found = audit.read_scaling(home, name, limit=decisions)
    if as_json:
        say_json(_scaling_json(found))
        return
    if dry_run:
        say(f"It would be: {_told(wanted)}. Nothing was changed (--dry-run).")
    _say_scaling(found)


def _scaling_json(found: Scaling) -> dict[str, object]:
    return {
        "pipeline": found.pipeline,
        "bounds": asdict(found.bounds),
        "decisions": [asdict(decision) for decision in found.decisions],
    }


def _say_scaling(found: Scaling) -> None:
    say(f"Pipeline {found.pipeline}: {_told(found.bounds)}.")
    if found.decisions:
        say_table(
            ("decided", "executors", "batch", "backlog", "busy", "reason"),
            [_row(decision) for decision in found.decisions],
        )


def _told(bounds: Bounds) -> str:
    if bounds == NOT_SCALED:
        return "not scaled; --max-executors or --max-batch begins it"
    return (
        f"executors {_range_told(bounds.executors)}, "
        f"offsets of a batch {_range_told(bounds.batch_offsets)}"
    )


def _range_told(one: Range | None) -> str:
    return "as they are" if one is None else str(one)


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
