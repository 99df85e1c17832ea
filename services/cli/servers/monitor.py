"""``monitor``: serves the page for the operator on call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.sinks.host_names import PUBLIC_NAMES_VARIABLE


@command("tallyweir monitor", "tallyweir monitor --port 8090")
def monitor(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="0 picks a free port.")
    ] = 8_090,
    public_name: Annotated[
        list[str] | None,
        typer.Option(
            envvar=PUBLIC_NAMES_VARIABLE,
            help="A host name that browsers use; may be repeated.",
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            envvar="TALLYWEIR_MONITOR_TOKENS_FILE",
            help="File of `monitor-tokens`: the people who may see payloads and act.",
        ),
    ] = None,
    contracts: Annotated[
        Path | None,
        typer.Option(
            help="Folder of contracts that pipeline files expect next to them."
        ),
    ] = None,
) -> None:
    """Serve a page that shows all pipelines of the home database.

    Without a token it only reads, and shows no payload of any event. Whoever reaches
    the address may look, so it listens on this machine only unless --host says
    otherwise. docs/monitor.md has the formula of every number.
    """
    from tallyweir.services.monitor.service import serve_monitor
    from tallyweir.services.process.endpoints import find_endpoints, resolve_acts_dsn
    from tallyweir.sinks.process_log import configure_logging

    endpoints = find_endpoints()
    configure_logging()
    serve_monitor(
        home_dsn=endpoints.home_dsn,
        acts_dsn=resolve_acts_dsn(endpoints.home_dsn),
        bootstrap=endpoints.kafka_bootstrap,
        host=host,
        port=port,
        public_names=public_name or (),
        tokens=tokens,
        contracts=contracts,
    )
