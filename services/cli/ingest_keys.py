"""``ingest-keys``: makes, lists and revokes the API keys of the ingest service."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated

import typer

from services.cli.rendering import example, note, say, say_table

_VARIABLE = "TALLYWEIR_INGEST_KEYS_FILE"
_File = Annotated[Path, typer.Option("--file", envvar=_VARIABLE, help="The keys file.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    keys = typer.Typer(
        name="ingest-keys",
        help="API keys of the ingest service; only their hashes are kept.",
        no_args_is_help=True,
        epilog=example("tallyweir ingest-keys create --producer shop --topic orders"),
    )
    keys.command(
        epilog=example(
            "tallyweir ingest-keys create --producer shop --topic orders",
            "tallyweir ingest-keys create --producer shop --topic orders --topic views "
            "--not-after 2027-01-01",
        )
    )(create)
    keys.command("list", epilog=example("tallyweir ingest-keys list"))(list_keys)
    keys.command(epilog=example("tallyweir ingest-keys revoke 0123456789ab"))(revoke)
    app.add_typer(keys)


def create(
    producer: Annotated[str, typer.Option(help="Whose key: small letters, digits, -.")],
    topic: Annotated[list[str], typer.Option(help="May be sent to; repeatable.")],
    file: _File,
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
    from services.ingest.http.api_keys import make_key
    from services.ingest.http.key_file import add_key

    key, text = make_key(
        producer=producer,
        topics=topic,
        id_prefix=f"{producer}:" if id_prefix is None else id_prefix,
        not_after=None if not_after is None else not_after.replace(tzinfo=dt.UTC),
    )
    add_key(file, key)
    note(f"Key {key.key_id} of {producer}; its IDs begin with {key.id_prefix!r}:")
    say(text)


def list_keys(file: _File) -> None:
    """List the keys, without their secrets, which nobody has."""
    from services.ingest.http.key_file import read_keys, utc_now

    now = utc_now()
    say_table(
        ("id", "producer", "id prefix", "topics", "not after", "active"),
        [
            (
                key.key_id,
                key.producer,
                repr(key.id_prefix),
                ",".join(sorted(key.topics)),
                key.not_after.isoformat() if key.not_after else "-",
                "yes" if key.is_active(now) else "no",
            )
            for key in read_keys(file)
        ],
    )


def revoke(
    key_id: Annotated[str, typer.Argument(help="As list shows it.")], file: _File
) -> None:
    """Let a key expire now. Its ID prefix stays taken."""
    from services.ingest.http.key_file import revoke_key

    revoke_key(file, key_id)
    note(f"Key {key_id} is refused from now on.")
