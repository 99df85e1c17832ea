"""``repair``: prints how to make home and participants agree again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.arguments import (
    AsJson,
    PipelineName,
    connected_home,
    pipeline_databases,
    pipeline_name,
)
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say, say_json, say_table

if TYPE_CHECKING:
    from tallyweir.sinks.postgres.audit.repair import (
        BranchEntry,
        Disagreement,
        RepairStep,
    )

_DISAGREES = 1


@command(
    "tallyweir repair departures --plan",
    "tallyweir repair departures.yaml --plan --json",
)
def repair(
    pipeline: PipelineName,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the steps; changes nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Tell where home and other databases disagree, and the steps that repair it.

    For PARTICIPANT_AHEAD, PARTICIPANT_BEHIND and BRANCH_LOST, as after the restore of
    one database. It only reads and prints: a person decides and does the steps. Exit
    code 1 when something disagrees.
    """
    from tallyweir.sinks.postgres.audit.repair import find_disagreement, repair_steps

    if not plan:
        raise typer.BadParameter(
            "repair is done by hand; add the option to see the steps",
            param_hint="--plan",
        )
    databases = pipeline_databases(pipeline)
    name = pipeline_name(pipeline)
    with connected_home("repair") as home:
        found = find_disagreement(home, name, databases)
    steps = repair_steps(found)
    if as_json:
        say_json(_as_json(found, steps))
    else:
        _say(found, steps)
    if steps:
        raise typer.Exit(_DISAGREES)


def _say(found: Disagreement, steps: tuple[RepairStep, ...]) -> None:
    name = found.pipeline.name
    if not steps:
        looked = ", ".join(b.branch for b in found.branches) or "no branches yet"
        say(f"Pipeline {name}: all databases agree; branches: {looked}.")
        if found.in_doubt:
            say(f"{len(found.in_doubt)} in doubt; see tallyweir indoubt list.")
        return
    codes = sorted({b.code for b in found.branches if b.code})
    say(f"Pipeline {name}: {', '.join(codes)}. Nothing was changed.")
    say_table(
        ("branch", "agreed up to", "only in the database", "only in home", "in doubt"),
        [
            (
                b.branch,
                f"batch {b.agreed.sequence}" if b.agreed else "-",
                _batches(b.only_marked),
                _batches(b.only_decided),
                _batches(b.in_doubt),
            )
            for b in found.branches
        ],
    )
    for rows in found.rows_beyond:
        where = ", ".join(f"{place}@{offset}" for place, offset in rows.examples)
        say(
            f"{rows.database}: table {rows.output.table} has {rows.rows:,} rows that "
            "the home will read again" + (f", such as {where}" if where else "")
        )
    for missing in found.missing:
        say(f"missing batches cover {missing}")
    say("\nTo repair it:")
    for number, step in enumerate(steps, start=1):
        say(f"\n{number}. {step.text}")
        if step.command:
            say(f"   $ {step.command}")
        if step.statements:
            say(f"   In {step.database}, by psql -v ON_ERROR_STOP=1:\n")
            say("\n".join(f"   {line}" for line in step.statements.splitlines()))


def _batches(entries: tuple[BranchEntry, ...]) -> str:
    if not entries:
        return "-"
    first, last = entries[0].sequence, entries[-1].sequence
    return f"batch {first}" if first == last else f"batches {first} to {last}"


def _as_json(found: Disagreement, steps: tuple[RepairStep, ...]) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "pipeline": found.pipeline.name,
        "agrees": not steps,
        "branches": [
            {**asdict(b), "database": b.database, "code": b.code}
            for b in found.branches
        ],
        "rows_beyond": [
            {
                "database": rows.database,
                "table": rows.output.table,
                "rows": rows.rows,
                "examples": [f"{place}@{offset}" for place, offset in rows.examples],
            }
            for rows in found.rows_beyond
        ],
        "missing": [str(one) for one in found.missing],
        "steps": [asdict(step) for step in steps],
    }
