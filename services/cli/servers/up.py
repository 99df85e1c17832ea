"""``up`` and ``down``: start and stop the embedded servers."""

from __future__ import annotations

from typing import Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say

_STATES = {True: "started", False: "runs already"}


@command("tallyweir up")
def up() -> None:
    """Start the embedded Kafka and Postgres; harmless when they run.

    They stay until `tallyweir down`, listen on 127.0.0.1 only, and keep their data.
    """
    from tallyweir.services.local.embedded.postgres import psql_line
    from tallyweir.services.local.embedded.servers import (
        embedded_kafka,
        embedded_postgres,
    )
    from tallyweir.services.process.endpoints import launcher, shown_dsn

    postgres = embedded_postgres()
    started = postgres.start()
    say(f"Postgres: {_STATES[started]}, {shown_dsn(postgres.dsn)}")
    kafka = embedded_kafka()
    started = kafka.start()
    say(f"Kafka: {_STATES[started]}, {kafka.bootstrap}")
    pass_file, uri = postgres.login
    say(f"  look in:  {psql_line(uri, pass_file)}")
    say(f"  stop:     {launcher()} down")


@command("tallyweir down", "tallyweir down --delete-data")
def down(
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Also delete their data, permanently.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Stop them even if processes use them.")
    ] = False,
) -> None:
    """Stop the embedded Kafka and Postgres cleanly; their data stays.

    Refused while a driver, or another process of ours, works with them: it would wait
    for them until they are started again.
    """
    from tallyweir.services.local.embedded.servers import (
        check_unused,
        embedded_kafka,
        embedded_postgres,
    )

    kafka, postgres = embedded_kafka(), embedded_postgres()
    if not force:
        ports = (
            kafka.is_running() and kafka.last_port(),
            postgres.is_running() and postgres.last_port(),
        )
        check_unused(port for port in ports if port)
    for name, server in (("Kafka", kafka), ("Postgres", postgres)):
        stopped = server.stop()
        say(f"{name}: {'stopped' if stopped else 'was not running'}")
        if delete_data:
            server.delete_data()
            say(f"{name}: data deleted ({server.directory})")
