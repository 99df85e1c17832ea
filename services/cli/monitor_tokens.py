"""``monitor-tokens``: makes, lists and revokes tokens for the monitor's page."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from services.cli.rendering import example, note, say, say_table

_VARIABLE = "TALLYWEIR_MONITOR_TOKENS_FILE"
_File = Annotated[Path, typer.Option("--file", envvar=_VARIABLE, help="The file.")]


class _Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    tokens = typer.Typer(
        name="monitor-tokens",
        help="Tokens for the monitor's page; only their hashes are kept.",
        no_args_is_help=True,
        epilog=example("tallyweir monitor-tokens create --name ada --role operator"),
    )
    tokens.command(
        epilog=example(
            "tallyweir monitor-tokens create --name ada --role operator",
            "tallyweir monitor-tokens create --name bob --role viewer "
            "--not-after 2027-01-01",
        )
    )(create)
    tokens.command("list", epilog=example("tallyweir monitor-tokens list"))(list_tokens)
    tokens.command(epilog=example("tallyweir monitor-tokens revoke 0123456789ab"))(
        revoke
    )
    app.add_typer(tokens)


def create(
    name: Annotated[str, typer.Option(help="Whose it is; acts are noted with it.")],
    role: Annotated[
        _Role, typer.Option(help="viewer sees payloads; operator acts as well.")
    ],
    file: _File,
    not_after: Annotated[
        dt.datetime | None, typer.Option(help="Expires then, UTC.")
    ] = None,
) -> None:
    """Make a token, and print it: this once, because only its hash is kept."""
    from services.monitor.tokens import Role, add_token, make_token

    token, text = make_token(
        name=name,
        role=Role(role.value),
        not_after=None if not_after is None else not_after.replace(tzinfo=dt.UTC),
    )
    add_token(file, token)
    note(f"Token {token.token_id} of {name}, {role.value}:")
    say(text)


def list_tokens(file: _File) -> None:
    """List the tokens, without their secrets, which nobody has."""
    from services.ingest.http.key_file import utc_now
    from services.monitor.tokens import read_tokens

    now = utc_now()
    say_table(
        ("id", "name", "role", "not after", "active"),
        [
            (
                one.token_id,
                one.name,
                one.role.value,
                one.not_after.isoformat() if one.not_after else "-",
                "yes" if one.is_active(now) else "no",
            )
            for one in read_tokens(file)
        ],
    )


def revoke(
    token_id: Annotated[str, typer.Argument(help="As list shows it.")], file: _File
) -> None:
    """Let a token expire now; a running monitor sees it at its next request."""
    from services.monitor.tokens import revoke_token

    revoke_token(file, token_id)
    note(f"Token {token_id} is refused from now on.")
