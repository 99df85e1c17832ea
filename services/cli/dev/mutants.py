"""``mutants``: breaks the code on purpose, and expects tests to notice."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from tallyweir.services.cli.command import command
from tallyweir.services.cli.rendering import note, say


@command(
    "tallyweir mutants",
    "tallyweir mutants fence-epoch-unchecked",
    "tallyweir mutants --all",
)
def mutants(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAMES", show_default=False),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Also those whose tests start servers.")
    ] = False,
) -> None:
    """Apply each mutant to a copy of the source tree, and run the test that it names.

    A mutant is a patch with a deliberate mistake. NAMES are names of mutants, or how
    they begin. Exit code 1 if a test does not notice its mutant, or if a patch does
    not apply any more.
    """
    from tallyweir.services.cli.dev.suite import temporary_state
    from tallyweir.services.dev.mutants.trial import (
        Mutant,
        choose,
        read_mutants,
        try_mutants,
    )
    from tallyweir.services.local.embedded.state_directory import ROOT
    from tallyweir.services.local.embedded.virtual_environment import (
        DEVELOPMENT_LOCK,
        install,
    )

    install(DEVELOPMENT_LOCK)
    started = time.monotonic()
    try:
        chosen = choose(read_mutants(), tuple(names or ()), all_=all_)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None

    def tell(mutant: Mutant, reason: str | None) -> None:
        if reason is None:
            note(f"killed      {mutant.name}")
        else:
            say(f"NOT KILLED  {mutant.name}: {reason}")

    with temporary_state() as environment:
        alive = try_mutants(
            chosen,
            ROOT,
            copies=os.cpu_count() or 1,
            environment=environment,
            tell=tell,
        )
    seconds = time.monotonic() - started
    killed = len(chosen) - alive
    say(f"tallyweir mutants: {killed} of {len(chosen)} killed ({seconds:.0f} s)")
    if alive:
        raise typer.Exit(1)
