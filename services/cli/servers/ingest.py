"""``ingest`` and ``ingest-keys``: HTTP in front of Kafka, and the keys to it."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say
from tallyweir.services.cli.servers.secret_commands import secret_commands
from tallyweir.sinks.host_names import PUBLIC_NAMES_VARIABLE

if TYPE_CHECKING:
    from tallyweir.services.ingest.api_keys import ApiKey
    from tallyweir.services.process.hashed_secrets import SecretKind


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
    from tallyweir.services.ingest.api_keys import KEYS_FILE_VARIABLE, KeyFile
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


_VARIABLE = "TALLYWEIR_INGEST_KEYS_FILE"


def create(
    producer: Annotated[
        str, typer.Option(help="The producer's name: small letters, digits, -.")
    ],
    topic: Annotated[
        list[str], typer.Option(help="A topic that the key allows; repeatable.")
    ],
    file: Annotated[
        Path, typer.Option("--file", envvar=_VARIABLE, help="The keys file.")
    ],
    id_prefix: Annotated[
        str | None,
        typer.Option(
            help="What the producer's event IDs begin with; '' for a producer that "
            "has its topics for itself [NAME:]."
        ),
    ] = None,
    not_after: Annotated[
        dt.datetime | None, typer.Option(help="Expires then, UTC.")
    ] = None,
) -> None:
    """Make a key, and print it: this once, because only its hash is kept.

    A producer has two active keys at most: make the second, let the producer change
    over, revoke the first. A running service sees the change within a second.
    """
    from tallyweir.services.ingest.api_keys import make_key
    from tallyweir.services.process.hashed_secrets import add_secret

    key, text = make_key(
        producer=producer,
        topics=topic,
        id_prefix=f"{producer}:" if id_prefix is None else id_prefix,
        not_after=None if not_after is None else not_after.replace(tzinfo=dt.UTC),
    )
    add_secret(file, _load_kind(), key)
    note(f"Key {key.id} of {producer}; its IDs begin with {key.id_prefix!r}:")
    say(text)


def _load_kind() -> SecretKind[ApiKey]:
    from tallyweir.services.ingest.api_keys import API_KEYS

    return API_KEYS


def _cells(key: ApiKey) -> tuple[str, ...]:
    return key.producer, repr(key.id_prefix), ",".join(sorted(key.topics))


GROUP = secret_commands(
    create,
    name="ingest-keys",
    word="key",
    about="API keys of the ingest service",
    variable=_VARIABLE,
    examples=(
        "tallyweir ingest-keys create --producer shop --topic orders",
        (
            "tallyweir ingest-keys create --producer shop --topic orders "
            "--topic views --not-after 2027-01-01"
        ),
    ),
    load_kind=_load_kind,
    headings=("producer", "id prefix", "topics"),
    cells=_cells,
)
