"""Commands that make, list and revoke the secrets of a file; only hashes are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tallyweir.services.cli.rendering import example, note, say_table

if TYPE_CHECKING:
    from tallyweir.services.process.hashed_secrets import SecretKind


def secret_commands(  # noqa: PLR0913 - what tells one kind from another
    create: Callable[..., None],
    *,
    name: str,
    word: str,
    about: str,
    variable: str,
    examples: Sequence[str],
    load_kind: Callable[[], SecretKind[Any]],
    headings: Sequence[str],
    cells: Callable[[Any], Sequence[str]],
) -> typer.Typer:
    """Make the group of commands for one kind of secret.

    Args:
        create: Makes a secret and prints it.
        name: Name of the group.
        word: The word for a secret of this kind.
        about: Purpose of the secrets.
        variable: Environment variable that names the file if no option does.
        examples: Examples of ``create``; the first is also the group's.
        load_kind: Imports the kind when a command runs.
        headings: Headings of the list's columns, besides id and expiry.
        cells: Returns the values of these columns for one secret.
    """
    option = typer.Option(..., "--file", envvar=variable, help="The file.")

    def list_secrets(file: Path = option) -> None:
        _list_secrets(file, load_kind(), headings, cells)

    def revoke(
        secret_id: str = typer.Argument(metavar="ID", help="The id that list shows."),
        file: Path = option,
    ) -> None:
        from tallyweir.services.process.hashed_secrets import revoke_secret

        revoke_secret(file, load_kind(), secret_id)
        note(f"The {word} {secret_id} is refused from now on.")

    group = typer.Typer(
        name=name,
        help=f"{about}; only their hashes are kept.",
        no_args_is_help=True,
        epilog=example(examples[0]),
    )
    group.command(epilog=example(*examples))(create)
    group.command(
        "list",
        help=f"List the {word}s; their secrets are not stored.",
        epilog=example(f"tallyweir {name} list"),
    )(list_secrets)
    group.command(
        help=f"Make a {word} expire now. It stays in the file; a running service "
        "refuses it within a second.",
        epilog=example(f"tallyweir {name} revoke 0123456789ab"),
    )(revoke)
    return group


def _list_secrets(
    file: Path,
    kind: SecretKind[Any],
    headings: Sequence[str],
    cells: Callable[[Any], Sequence[str]],
) -> None:
    from tallyweir.services.process.hashed_secrets import read_secrets, utc_now

    now = utc_now()
    say_table(
        ("id", *headings, "not after", "active"),
        [
            (
                one.id,
                *cells(one),
                one.not_after.isoformat() if one.not_after else "-",
                "yes" if one.is_active(now) else "no",
            )
            for one in read_secrets(file, kind)
        ],
    )
