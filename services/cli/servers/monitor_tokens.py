"""``monitor-tokens``: makes, lists and revokes tokens for the monitor's page."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.rendering import note, say
from tallyweir.services.cli.servers.secret_commands import add_secret_commands

if TYPE_CHECKING:
    from tallyweir.services.monitor.tokens import PageToken
    from tallyweir.services.process.hashed_secrets import SecretKind

_VARIABLE = "TALLYWEIR_MONITOR_TOKENS_FILE"


class _Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    add_secret_commands(
        app,
        create,
        name="monitor-tokens",
        word="token",
        about="Tokens for the monitor's page",
        variable=_VARIABLE,
        examples=(
            "tallyweir monitor-tokens create --name ada --role operator",
            (
                "tallyweir monitor-tokens create --name bob --role viewer "
                "--not-after 2027-01-01"
            ),
        ),
        load_kind=_load_kind,
        headings=("name", "role"),
        cells=_cells,
    )


def create(
    name: Annotated[
        str, typer.Option(help="The person's name; the ledger notes it with each act.")
    ],
    role: Annotated[
        _Role,
        typer.Option(
            help="viewer sees payloads; operator also acts; admin also erases."
        ),
    ],
    file: Annotated[
        Path, typer.Option("--file", envvar=_VARIABLE, help="The tokens file.")
    ],
    not_after: Annotated[
        dt.datetime | None, typer.Option(help="Expires then, UTC.")
    ] = None,
) -> None:
    """Make a token, and print it: this once, because only its hash is kept."""
    from tallyweir.services.monitor.tokens import Role, make_token
    from tallyweir.services.process.hashed_secrets import add_secret

    token, text = make_token(
        name=name,
        role=Role(role.value),
        not_after=None if not_after is None else not_after.replace(tzinfo=dt.UTC),
    )
    add_secret(file, _load_kind(), token)
    note(f"Token {token.id} of {name}, {role.value}:")
    say(text)


def _load_kind() -> SecretKind[PageToken]:
    from tallyweir.services.monitor.tokens import PAGE_TOKENS

    return PAGE_TOKENS


def _cells(token: PageToken) -> tuple[str, ...]:
    return token.name, token.role.value
