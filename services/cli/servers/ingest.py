"""``ingest``: the HTTP service in front of Kafka."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.sinks.host_names import PUBLIC_NAMES_VARIABLE


@command(
    "tallyweir ingest departures.yaml",
    "tallyweir ingest departures.yaml page-views.yaml --port 8080",
)
def ingest(
    pipelines: Annotated[
        list[Path],
        typer.Argument(
            metavar="PIPELINE...", help="Pipeline files whose topics to serve."
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="0 picks a free port.")
    ] = 8_080,
    public_name: Annotated[
        list[str] | None,
        typer.Option(
            envvar=PUBLIC_NAMES_VARIABLE,
            help="A host name that clients use; may be repeated.",
        ),
    ] = None,
) -> None:
    """Take events over HTTP for producers that speak no Kafka.

    An event is answered 202 when the broker has it, and not before. Who may send is
    in the file that TALLYWEIR_INGEST_KEYS_FILE names; see ingest-keys. SIGTERM and
    Ctrl-C drain: what is in flight is answered first. docs/ingest.md has the rest.
    """
    from tallyweir.services.local.embedded.extras import package_folder

    package_folder("cloudevents")
    from tallyweir.services.ingest.key_file import KEYS_FILE_VARIABLE, KeyFile
    from tallyweir.services.ingest.served_topics import read_served_topics
    from tallyweir.services.ingest.server import serve
    from tallyweir.services.process.endpoints import (
        given_kafka_bootstrap,
        resolve_endpoints,
    )
    from tallyweir.sinks.process_log import configure_logging
    from tallyweir.sinks.protocol.errors import ConfigurationError

    served = read_served_topics(pipelines)
    keys_file = os.environ.get(KEYS_FILE_VARIABLE)
    if not keys_file:
        raise ConfigurationError(
            "KEYS_FILE_UNNAMED",
            saw=f"{KEYS_FILE_VARIABLE} is not set.",
            why="The service knows its callers by their keys.",
            fix="Create a file with tallyweir ingest-keys create, and set the variable "
            "to its path.",
        )
    keys = KeyFile(Path(keys_file))
    configure_logging()
    serve(
        bootstrap=given_kafka_bootstrap() or resolve_endpoints().kafka_bootstrap,
        served=served,
        keys=keys,
        host=host,
        port=port,
        public_names=public_name or (),
    )
