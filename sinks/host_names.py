"""The host names that a server answers to, as a defence against DNS rebinding.

A browser lets a page read from any address that the page's host name resolves to. An
attacker who controls a name can let it resolve to this server. So a server answers only
to names that are known to be its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

from tallyweir.sinks.protocol.errors import ConfigurationError

#: Further names, separated by spaces.
PUBLIC_NAMES_VARIABLE = "TALLYWEIR_PUBLIC_NAMES"

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[0-9a-z._-]+)(:[0-9]{0,5})?", re.IGNORECASE)
_NAME = re.compile(r"[0-9a-z._-]{1,253}", re.IGNORECASE)
_LOCAL = "localhost"

_Name = str | IPv4Address | IPv6Address


class HostNames:
    """The names of a server.

    Args:
        names: The names or addresses that the operator gave it.

    Raises:
        ConfigurationError: ``PUBLIC_NAME_INVALID``.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {_LOCAL, *(_read_name(name) for name in names)}

    def know(self, host: str, reached_at: str) -> bool:
        """Tell whether a request is meant for this server.

        Args:
            host: The request's ``Host``.
            reached_at: The address of this end of the connection. No other site can
                have it as its name.
        """
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = _normalised(match[1].strip("[]"))
        if name in self._names:
            return True
        if isinstance(name, str):
            return False
        return name.is_loopback or name == _normalised(reached_at)


def _read_name(text: str) -> _Name:
    name = _normalised(text.strip("[]"))
    if isinstance(name, str) and not _NAME.fullmatch(name):
        raise ConfigurationError(
            "PUBLIC_NAME_INVALID",
            saw=f"The public name {text!r} is invalid.",
            why="Tallyweir compares it with the host name in each request.",
            fix="Give the name only, such as monitor.example.com: no scheme, no port.",
        )
    return name


def _normalised(text: str) -> _Name:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return text.lower()
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
