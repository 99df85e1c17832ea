"""``cost``: shows usage and cost of a pipeline, and what would be cheaper."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.arguments import (
    AsJson,
    PipelineName,
    connected_home,
    pipeline_name,
)
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say, say_json, say_table

if TYPE_CHECKING:
    from tallyweir.services.operate.cost.estimate import Estimate, Prices, WhatIf
    from tallyweir.sinks.postgres.audit import Usage

_OVER_BUDGET = 1


@command(
    "tallyweir cost departures",
    "tallyweir cost departures --since '7 days' --prices prices.yaml",
)
def cost(
    pipeline: PipelineName,
    since: Annotated[str, typer.Option(help="How far back to look.")] = "1 day",
    prices: Annotated[
        Path | None, typer.Option(help="YAML file of prices and a budget.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a pipeline's batches have used, and with prices what it costs.

    Exit code 1 when at this rate a budget of the file is passed.
    docs/cost.md has the formula of every number.
    """
    from tallyweir.services.operate.cost.estimate import (
        estimate_cost,
        imagine,
        read_prices,
    )
    from tallyweir.sinks.postgres import audit

    span = _span(since)
    known = None if prices is None else read_prices(prices)
    name = pipeline_name(pipeline)
    with connected_home("cost") as home:
        usage = audit.read_usage(home, name, span=span)
    estimate = None if known is None else estimate_cost(usage, known)
    what_ifs: tuple[WhatIf, ...] = ()
    if known is not None and estimate is not None:
        what_ifs = imagine(usage, estimate, known)
    if as_json:
        say_json(_cost_json(usage, known, estimate, what_ifs))
    else:
        _say_usage(usage)
        if known is not None and estimate is not None:
            _say_estimate(usage, known, estimate, what_ifs)
    if known is not None and estimate is not None and is_over(known, estimate):
        raise typer.Exit(_OVER_BUDGET)


def _span(written: str) -> timedelta:
    from tallyweir.sinks.protocol.durations import EXAMPLES, parse_duration

    try:
        return parse_duration(written)
    except ValueError as error:
        told = f"{error}; write one such as {EXAMPLES}"
        raise typer.BadParameter(told, param_hint="--since") from error


def is_over(prices: Prices, estimate: Estimate) -> bool:
    """Return whether the cost exceeds a limit of the budget at this rate."""
    from tallyweir.services.operate.cost.estimate import shares_of_budget

    if prices.budget is None:
        return False
    return any(one > 1 for one in shares_of_budget(estimate, prices.budget).values())


def _cost_json(
    usage: Usage,
    prices: Prices | None,
    estimate: Estimate | None,
    what_ifs: tuple[WhatIf, ...],
) -> dict[str, object]:
    value: dict[str, object] = {
        "pipeline": usage.pipeline,
        "usage": {**asdict(usage), "cpu_s": usage.cpu_s, "hours": usage.hours},
        "cost": None,
        "budget": None,
        "what_if": [asdict(one) for one in what_ifs],
    }
    if prices is not None and estimate is not None:
        value["cost"] = {
            **asdict(estimate),
            "total": estimate.total,
            "per_million_events": estimate.per_million,
            "per_day": estimate.per_day,
            "per_month": estimate.per_month,
        }
        if prices.budget is not None:
            value["budget"] = {
                **asdict(prices.budget),
                "is_over": is_over(prices, estimate),
            }
    return value


def _say_usage(usage: Usage) -> None:
    say(
        f"Pipeline {usage.pipeline}: {usage.batches:,} measured batches and "
        f"{usage.read:,} records in {usage.hours:.2f} h."
    )
    cpu = ", ".join(f"{who} {s:.1f}" for who, s in sorted(usage.cpu_seconds.items()))
    say(f"CPU {usage.cpu_s:.1f} s ({cpu}), WAL at most {usage.wal_bytes:,} bytes.")
    if usage.batches:
        say_table(
            ("step", "CPU s", "CPU s/batch", "rows out", "bytes", "bytes/batch"),
            [
                (
                    name,
                    f"{step.cpu_seconds:.2f}",
                    f"{step.cpu_seconds / usage.batches:.4f}",
                    f"{step.rows_out:,}",
                    f"{step.bytes:,}",
                    f"{step.bytes / usage.batches:,.0f}",
                )
                for name, step in usage.steps.items()
            ],
        )


def _say_estimate(
    usage: Usage, prices: Prices, estimate: Estimate, what_ifs: tuple[WhatIf, ...]
) -> None:
    unit = estimate.currency
    say_table(
        ("item", "quantity", "price", unit),
        [
            (name, f"{one.quantity:.4f} {one.unit}", one.price, f"{one.cost:.6f}")
            for name, one in estimate.items.items()
        ],
    )
    say_table(
        ("table", "rows", unit),
        [
            (name, f"{usage.outputs[name].rows:,}", f"{paid:.6f}")
            for name, paid in estimate.tables.items()
        ],
    )
    million = estimate.per_million
    told = "" if million is None else f", {million:.4f} {unit} per million events"
    say(
        f"Total {estimate.total:.6f} {unit}{told}; at this rate {estimate.per_day:.4f} "
        f"a day and {estimate.per_month:.2f} a month."
    )
    if prices.budget is not None:
        from tallyweir.services.operate.cost.estimate import shares_of_budget

        for what, share in shares_of_budget(estimate, prices.budget).items():
            verdict = "OVER" if share > 1 else "within"
            say(f"Budget of {what}: {verdict}, {share:.0%} of it.")
    for one in what_ifs:
        say(
            f"What if {one.change}: {one.saving:.6f} {unit} less ({one.share:.1%}). "
            f"{one.formula}. {one.certainty}"
        )
