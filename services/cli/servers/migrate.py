"""``migrate``: migrates every database to this version, and grants the roles."""

from __future__ import annotations

from typing import Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import say


@command("tallyweir migrate", "tallyweir migrate --roles")
def migrate(
    roles: Annotated[
        bool,
        typer.Option("--roles", help="Also grant the group roles their rights."),
    ] = False,
) -> None:
    """Apply the missing migrations to the home and each database beside it.

    Those are the databases of TALLYWEIR_DATABASES. Run it as the owner of their
    schemas, with the drivers stopped; everything else may then run under roles that
    own nothing. docs/security.md says what each role may do. Doing it again changes
    nothing, and after a crash it goes on.
    """
    from tallyweir.services.process.endpoints import resolve_databases
    from tallyweir.sinks.postgres.schema import migrations
    from tallyweir.sinks.postgres.schema.roles import grant_roles
    from tallyweir.sinks.postgres.server.naming import HOME

    for name, dsn in resolve_databases().items():
        if name == HOME:
            applied = migrations.migrate(dsn)
        else:
            applied = migrations.migrate_participant(dsn)
        done = f"applied {', '.join(applied)}" if applied else "up to date"
        if roles:
            grant_roles(dsn, name)
            done += "; roles granted"
        say(f"{name}: {done}")
