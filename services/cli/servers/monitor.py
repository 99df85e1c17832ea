"""``monitor`` and ``monitor-tokens``: the page for operators, and who may act there."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say
from tallyweir.services.cli.servers.secret_commands import secret_commands
from tallyweir.sinks.host_names import PUBLIC_NAMES_VARIABLE

if TYPE_CHECKING:
    from tallyweir.services.monitor.tokens import PageToken
    from tallyweir.services.process.hashed_secrets import SecretKind


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

    Without a token it only reads, and shows no payload of any event. The page needs no
    login, so it listens on this machine only unless --host says otherwise.
    docs/monitor.md has the formula of every number.
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


_VARIABLE = "TALLYWEIR_MONITOR_TOKENS_FILE"


class _Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


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


GROUP = secret_commands(
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
