"""Which names are a server's own."""

from __future__ import annotations

import pytest

from tallyweir.sinks.host_names import HostNames
from tallyweir.sinks.protocol.errors import ConfigurationError

NAMES = HostNames(["monitor.example.com", "192.0.2.1", "[2001:db8::1]"])


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST", "localhost:8090", "127.0.0.1", "127.9.9.9:1"),
        *("[::1]:8090", "[::ffff:127.0.0.1]", "monitor.example.com:443"),
        *("MONITOR.example.com", "192.0.2.1:80", "[2001:DB8:0::1]", "10.0.0.7:8090"),
        "[::ffff:10.0.0.7]",
    ],
)
def test_its_own(host: str) -> None:
    """Loopback's, those it was given, and the address that was asked."""
    assert NAMES.know(host, "10.0.0.7")
    assert NAMES.know(host, "::ffff:10.0.0.7")


@pytest.mark.parametrize(
    "host",
    [
        *("", "rebound.example", "rebound.example:8090", "localhost.rebound.example"),
        *("127.0.0.1.rebound.example", "localhost@rebound.example", "192.0.2.2"),
        *("0.0.0.0", "0x7f.1", "2130706433", "localhost:80:80", "[::1", "::1"),
        *("localhost/", "localhost ", "10.0.0.8", "monitor.example.com.evil"),
        *("localhost\n", "localhos\u0165"),
    ],
)
def test_no_other(host: str) -> None:
    """Whatever they look like."""
    assert not NAMES.know(host, "10.0.0.7")


@pytest.mark.parametrize("name", ["https://a", "a:80", "a/b", "", "*"])
def test_what_is_no_name_is_refused(name: str) -> None:
    """It could never be asked for."""
    with pytest.raises(ConfigurationError) as refused:
        HostNames([name])
    assert refused.value.code == "PUBLIC_NAME_INVALID"
