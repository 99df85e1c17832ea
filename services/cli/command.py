"""Makes functions commands of ``tallyweir``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

from tallyweir.services.cli.rendering import example

_Function = TypeVar("_Function", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class _Command:
    function: Callable[..., None]
    name: str | None
    examples: tuple[str, ...]
    context_settings: dict[str, Any] | None
    cls: type[TyperCommand] | None


#: Commands by the module that has them, in the order of their definition.
_COMMANDS: defaultdict[str, list[_Command]] = defaultdict(list)


def command(
    *examples: str,
    name: str | None = None,
    context_settings: dict[str, Any] | None = None,
    cls: type[TyperCommand] | None = None,
) -> Callable[[_Function], _Function]:
    """Make a function a command: its parameters are the options, its docstring helps.

    Args:
        examples: Lines at the end of the command's help.
        name: Name of the command, if it is not that of the function.
        context_settings: Click's settings for the command.
        cls: The command's class, if it reads its arguments in a way of its own.
    """

    def mark(function: _Function) -> _Function:
        _COMMANDS[function.__module__].append(
            _Command(function, name, examples, context_settings, cls)
        )
        return function

    return mark


def add_commands(app: typer.Typer, module: ModuleType) -> None:
    """Add the commands of a module, and its ``GROUP`` of commands if it has one."""
    for one in _COMMANDS[module.__name__]:
        app.command(
            one.name,
            epilog=example(*one.examples),
            context_settings=one.context_settings,
            cls=one.cls,
        )(one.function)
    if hasattr(module, "GROUP"):
        app.add_typer(module.GROUP)
