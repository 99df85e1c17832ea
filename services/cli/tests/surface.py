"""Prints every command with its arguments and options, as ``surface.txt`` keeps them.

``python -m tallyweir.services.cli.tests.surface > services/cli/tests/surface.txt``
after a change that users are told of.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from tallyweir.services.cli.app import build_app


def surface() -> str:
    """Return one line for each command, and one below it for each parameter."""
    return "".join(
        f"{line}\n" for line in _lines(get_command(build_app()), "tallyweir")
    )


def _lines(command: Any, name: str) -> Iterator[str]:  # noqa: ANN401 - Typer's own
    commands = getattr(command, "commands", None)
    if commands is not None:
        for inner in sorted(commands):
            yield from _lines(commands[inner], f"{name} {inner}")
        return
    yield name
    for parameter in command.params:
        names = " ".join((*parameter.opts, *parameter.secondary_opts))
        notes = [
            "flag" if getattr(parameter, "is_flag", False) else "value",
            *(["required"] if parameter.required else []),
            *(["repeated"] if parameter.multiple or parameter.nargs != 1 else []),
            *([f"default {parameter.default}"] if parameter.default else []),
        ]
        yield f"    {names} ({', '.join(notes)})"


if __name__ == "__main__":
    sys.stdout.write(surface())
