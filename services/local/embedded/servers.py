"""The two embedded servers of the state directory, and our processes that use them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import PurePath

import psutil

from tallyweir.services.local.embedded.kafka import EmbeddedKafka
from tallyweir.services.local.embedded.postgres import EmbeddedPostgres
from tallyweir.services.local.embedded.state_directory import state_directory
from tallyweir.sinks.protocol.errors import ConfigurationError


def embedded_kafka() -> EmbeddedKafka:
    """Return the broker that commands use if no other one is configured."""
    return EmbeddedKafka(state_directory() / "kafka")


def embedded_postgres() -> EmbeddedPostgres:
    """Return the home database that commands use if no other one is configured."""
    return EmbeddedPostgres(state_directory() / "postgres")


#: Our processes are started as ``python -m`` with one of these, or, where Tallyweir is
#: installed, by a script of this name.
_PROGRAMS = ("tallyweir.spark_jobs", "tallyweir.services.")
_SCRIPT = "tallyweir"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A process that works with a server.

    Attributes:
        command: The command as people type it.
    """

    process_id: int
    command: str

    def __str__(self) -> str:
        return f"process {self.process_id} ({self.command})"


def check_unused(ports: Iterable[int]) -> None:
    """Check that none of our processes uses servers that are to be stopped.

    Args:
        ports: Ports of running servers.

    Raises:
        ConfigurationError: ``SERVERS_IN_USE``.
    """
    clients = find_clients(set(ports))
    if clients:
        raise ConfigurationError(
            "SERVERS_IN_USE",
            saw=f"These processes use the servers: {', '.join(map(str, clients))}.",
            why="A driver would wait until the servers start again, and other "
            "processes would fail.",
            fix="Stop the processes first: kill PROCESS stops each cleanly. Or stop "
            "the servers anyway with --force, which loses nothing.",
        )


def find_clients(ports: Collection[int]) -> list[Client]:
    """Return our processes that are connected to some ports of this machine.

    It finds neither processes of other users nor this process.
    """
    found = []
    for process in psutil.process_iter():
        try:
            program = _program(process.cmdline())
            if program is None or process.pid == os.getpid():
                continue
            connections = process.net_connections("tcp")
        except psutil.Error:
            continue
        # A listening socket has no remote address.
        if any(getattr(one.raddr, "port", None) in ports for one in connections):
            found.append(Client(process_id=process.pid, command=program))
    return found


def _program(command: list[str]) -> str | None:
    """Return the part of a command line that people know; None if it is not ours."""
    for at, word in enumerate(command[:-1]):
        if word == "-m" and command[at + 1].startswith(_PROGRAMS):
            return " ".join(command[at + 1 :])
    # The kernel puts the interpreter before a script.
    if len(command) > 1 and PurePath(command[1]).name == _SCRIPT:
        return " ".join([_SCRIPT, *command[2:]])
    return None
