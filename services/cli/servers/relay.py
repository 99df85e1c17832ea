"""``relay``: sends dead letters, the outbox and committed offsets to Kafka."""

from __future__ import annotations

from typing import Annotated

import typer

from tallyweir.services.cli.arguments import Once
from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say
from tallyweir.services.cli.servers.resolver import seconds_of

_FAILED = 1


@command("tallyweir relay", "tallyweir relay --once", "tallyweir relay --every 10s")
def relay(
    once: Once = False,
    every: Annotated[
        str, typer.Option(help="Time between rounds, in seconds or minutes.")
    ] = "2s",
) -> None:
    """Publish what the home database has decided to Kafka, for all its pipelines.

    Sends dead letters to SOURCE_TOPIC.dlq, at least once, in commit order and each
    under an ID that repeats share, and shows the committed offsets in the consumer
    groups tallyweir.PIPELINE. One relay works at a time; another one stands by and
    takes over. With --once the exit code is 1 when something could not be done.
    """
    from tallyweir.services.process.endpoints import resolve_endpoints
    from tallyweir.services.relay.service import RelayMetrics, RelayService
    from tallyweir.sinks.metrics_endpoint import serve_metrics
    from tallyweir.sinks.postgres.schema.migrations import migrate
    from tallyweir.sinks.process_log import configure_logging

    every_s = seconds_of(every)
    configure_logging()
    endpoints = resolve_endpoints()
    migrate(endpoints.home_dsn)
    metrics = RelayMetrics()
    service = RelayService(
        endpoints.home_dsn, endpoints.kafka_bootstrap, every_s=every_s, metrics=metrics
    )
    service.stop_on_signals()
    if not once:
        with serve_metrics(
            metrics.registry, live={}, ready={"rounds": service.rounds.check}
        ):
            service.run()
        return
    was_active, failures = service.run_once()
    if not was_active and not failures:
        say("another relay is running")
        return
    sent = sum(
        sample.value
        for family in metrics.messages.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    )
    say(f"{sent:.0f} messages sent, {len(failures)} failures")
    if failures:
        raise typer.Exit(_FAILED)
