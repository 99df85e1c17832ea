"""``resolver``: finishes branches that crashes have left prepared."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from tallyweir.services.cli.arguments import Once
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say

_DURATION = re.compile(r"([1-9][0-9]{0,5}) ?(s|m)")
_FAILED = 1


@command(
    "tallyweir resolver", "tallyweir resolver --once", "tallyweir resolver --every 2m"
)
def resolver(
    once: Once = False,
    every: Annotated[
        str, typer.Option(help="Time between rounds, in seconds or minutes.")
    ] = "30s",
) -> None:
    """Finish prepared branches and merge seen IDs, of all pipelines of the home.

    Looks into the home and each database of TALLYWEIR_DATABASES. What is decided is
    committed, orphans of superseded drivers are rolled back; what a live driver may
    yet decide, and whatever is not ours, is left alone. Safe beside running drivers,
    which do the same for themselves. With --once the exit code is 1 when something
    could not be done.
    """
    from tallyweir.services.process.endpoints import resolve_databases
    from tallyweir.services.resolver.service import ResolverMetrics, ResolverService
    from tallyweir.sinks.metrics_endpoint import serve_metrics
    from tallyweir.sinks.process_log import configure_logging

    every_s = seconds_of(every)
    configure_logging()
    metrics = ResolverMetrics()
    service = ResolverService(resolve_databases(), every_s=every_s, metrics=metrics)
    service.stop_on_signals()
    if not once:
        ready = {"rounds": service.rounds.check}
        with serve_metrics(metrics.registry, live={}, ready=ready):
            service.run()
        return
    report = service.run_once()
    merges = service.merge_once()
    failures = len(report.failures) + len(merges.failures)
    say(
        f"{len(report.committed)} committed, {len(report.rolled_back)} rolled back, "
        f"{len(report.left)} left, {len(merges.merged)} buckets merged, "
        f"{failures} failures"
    )
    if failures:
        raise typer.Exit(_FAILED)


def seconds_of(text: str) -> float:
    """Read a duration such as ``30s`` or ``2m``.

    Raises:
        typer.BadParameter: The text is no duration.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise typer.BadParameter(
            f"{text!r} is not a duration such as 30s or 2m", param_hint="--every"
        )
    return int(match[1]) * (60.0 if match[2] == "m" else 1.0)
