"""Makes functions commands of ``tallyweir``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import typer

from tallyweir.services.cli.rendering import example

_Function = TypeVar("_Function", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class _Command:
    function: Callable[..., None]
    name: str | None
    examples: tuple[str, ...]
    context_settings: dict[str, Any] | None


#: Commands by the module that has them, in the order of their definition.
_COMMANDS: defaultdict[str, list[_Command]] = defaultdict(list)


def command(
    *examples: str,
    name: str | None = None,
    context_settings: dict[str, Any] | None = None,
) -> Callable[[_Function], _Function]:
    """Make a function a command: its parameters are the options, its docstring helps.

    Args:
        examples: Lines at the end of the command's help.
        name: Name of the command, if it is not that of the function.
        context_settings: Click's settings for the command.
    """

    def mark(function: _Function) -> _Function:
        _COMMANDS[function.__module__].append(
            _Command(function, name, examples, context_settings)
        )
        return function

    return mark


def add_commands(app: typer.Typer, module: ModuleType) -> None:
    """Add the commands of a module, and the groups that its ``register`` adds."""
    for one in _COMMANDS[module.__name__]:
        app.command(
            one.name,
            epilog=example(*one.examples),
            context_settings=one.context_settings,
        )(one.function)
    if hasattr(module, "register"):
        module.register(app)
