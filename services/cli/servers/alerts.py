"""``alerts``: the service that sends alerts about pipelines."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.arguments import Once, connected_home
from tallyweir.services.cli.rendering import example, say, say_json, say_table
from tallyweir.sinks.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from tallyweir.services.alerts.rules_file import RulesFile

_FAILED = 1


GROUP = typer.Typer(
    name="alerts",
    invoke_without_command=True,
    epilog=example(
        "tallyweir alerts --rules docker/observability/alerts.yaml --check",
        "tallyweir alerts --rules docker/observability/alerts.yaml",
        "tallyweir alerts list",
    ),
)


@GROUP.callback()
def alerts(
    context: typer.Context,
    rules: Annotated[
        Path | None, typer.Option(help="YAML file of rules and channels.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only show which rules hold now.")
    ] = False,
    once: Once = False,
) -> None:
    """Look at all pipelines every few seconds, and tell whom the rules name.

    What fires is in the home database, so that no restart forgets or repeats it. One
    service works at a time; another one stands by and takes over. Each notification is
    sent at least once, always under the same ID. --check sends and changes
    nothing. With --once the exit code is 1 when something could not be done.
    docs/alerts.md has every rule and channel.
    """
    if context.invoked_subcommand is not None:
        return
    from tallyweir.services.alerts.channels import make_channels
    from tallyweir.services.alerts.rules_file import read_rules
    from tallyweir.services.alerts.service import AlertMetrics, AlertService
    from tallyweir.services.process.endpoints import find_endpoints, resolve_endpoints
    from tallyweir.sinks.metrics_endpoint import serve_metrics
    from tallyweir.sinks.postgres.schema.migrations import migrate
    from tallyweir.sinks.process_log import configure_logging

    if rules is None:
        raise typer.BadParameter("name a file of rules", param_hint="--rules")
    asked = read_rules(rules)
    channels = make_channels(asked.channels, os.environ)
    configure_logging()
    if check:
        found = find_endpoints()
        _check(asked, found.home_dsn, found.kafka_bootstrap)
        return
    endpoints = resolve_endpoints()
    migrate(endpoints.home_dsn)
    metrics = AlertMetrics()
    service = AlertService(
        endpoints.home_dsn,
        endpoints.kafka_bootstrap,
        rules=asked,
        channels=channels,
        metrics=metrics,
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
        say("another alerts service is running")
        return
    if failures:
        say(f"not done: {', '.join(failures)}")
        raise typer.Exit(_FAILED)
    show(as_json=False)


@GROUP.command(
    "list", epilog=example("tallyweir alerts list", "tallyweir alerts list --json")
)
def show(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
) -> None:
    """Show what fires now, as the alerts service has found it."""
    from tallyweir.sinks.postgres.records.alert_book import read_firing

    with connected_home("alerts") as home:
        firing = read_firing(home)
    if as_json:
        say_json({"firing": [asdict(one) for one in firing]})
        return
    if not firing:
        say("Nothing fires.")
        return
    say_table(
        ["pipeline", "rule", "severity", "fired", "untold", "told"],
        [
            [
                one.pipeline,
                one.rule,
                one.severity,
                f"{one.fired_at:%Y-%m-%dT%H:%M:%SZ}",
                ",".join(one.untold) or "-",
                one.told,
            ]
            for one in firing
        ],
    )


def _check(asked: RulesFile, home_dsn: str, bootstrap: str) -> None:
    from tallyweir.services.alerts.observer import Observer
    from tallyweir.sinks.postgres.server.connection import connect

    observer = Observer(bootstrap, asked.rules.values())
    with connect(home_dsn, application_name="tallyweir alerts") as home:
        observations, troubles = observer.observe(observer.read_home(home))
    rows: list[list[str]] = []
    for name, rule in asked.rules.items():
        about = [one for one in observations if rule.is_about(one.pipeline)]
        if not about:
            rows.append([name, rule.pipelines, "no pipeline", "-"])
        for seen in about:
            judged = rule.judge(seen, None)
            word = "unknown" if judged is None else "holds" if judged.holds else "quiet"
            if judged is not None and judged.holds and rule.lasting:
                word = f"holds, fires after {rule.lasting.total_seconds():.0f} s"
            rows.append([name, seen.pipeline, word, judged.told if judged else "-"])
    say_table(["rule", "pipeline", "now", "told"], rows)
    if troubles:
        (error, *_) = troubles
        raise ConfigurationError(
            error.code, saw=error.saw, why=error.why, fix=error.fix
        ) from error
