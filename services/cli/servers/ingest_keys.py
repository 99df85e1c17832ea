"""``ingest-keys``: makes, lists and revokes API keys of the ingest service."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.rendering import note, say
from tallyweir.services.cli.servers.secret_commands import add_secret_commands

if TYPE_CHECKING:
    from tallyweir.services.ingest.api_keys import ApiKey
    from tallyweir.services.process.hashed_secrets import SecretKind

_VARIABLE = "TALLYWEIR_INGEST_KEYS_FILE"


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    add_secret_commands(
        app,
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
    from tallyweir.services.ingest.key_file import API_KEYS

    return API_KEYS


def _cells(key: ApiKey) -> tuple[str, ...]:
    return key.producer, repr(key.id_prefix), ",".join(sorted(key.topics))
