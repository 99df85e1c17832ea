"""Packets that vanish between two containers: nobody is told, nothing is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from integration_tests.containers.deployment import Deployment


@contextmanager
def silence(system: Deployment, service: str, peer: str) -> Iterator[None]:
    """Drop what a service and its peer send each other, for as long as the block lasts.

    Works in the service's network namespace, so this process must be root.
    """
    process = str(system.container(service).attrs["State"]["Pid"])
    address = system.address(peer)

    inside = ["nsenter", "--target", process, "--net", "iptables"]

    def drop(change: str) -> None:
        for chain, direction in (("OUTPUT", "-d"), ("INPUT", "-s")):
            rule = [change, chain, direction, address, "-j", "DROP"]
            subprocess.run([*inside, *rule], check=True)

    drop("-I")
    try:
        yield
    finally:
        drop("-D")
