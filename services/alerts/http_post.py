"""One POST, which ends in bounded time whatever the server does."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from urllib.parse import urlsplit

from tallyweir.services.alerts.channel import (
    STEP_TIMEOUT_S,
    TIMEOUT_S,
    refused,
    unreachable,
)

_OK = range(200, 300)


def post(channel: str, url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Send JSON, and require that it was taken: an answer of 200 to 299.

    It follows no redirect: the body goes to the address that the operator named, or
    nowhere.

    Args:
        channel: Name of the channel, for errors.
        url: An ``http`` or ``https`` address that was checked before.
        body: The JSON to send.
        headers: Headers in addition to those of every request.

    Raises:
        RetryableError: ``ALERT_CHANNEL_UNREACHABLE`` or ``ALERT_CHANNEL_REFUSED``.
    """
    parts = urlsplit(url)
    assert parts.hostname, "the rules file was checked"
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    kind = (
        http.client.HTTPSConnection
        if parts.scheme == "https"
        else http.client.HTTPConnection
    )
    connection = kind(parts.hostname, parts.port, timeout=STEP_TIMEOUT_S)
    all_headers = {"content-type": "application/json", **headers}
    # A server that sends a byte now and then never exceeds the limit of a single step.
    deadline = threading.Timer(TIMEOUT_S, _cut, [connection])
    deadline.daemon = True
    deadline.start()
    try:
        with closing(connection):
            connection.request("POST", path, body, all_headers)
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ssl.SSLError) as error:
        # The error's text may quote the address.
        raise unreachable(channel, type(error).__name__) from None
    finally:
        deadline.cancel()
    if status not in _OK:
        raise refused(channel, f"it answered {status}")


def address_of(url: str) -> tuple[str, int]:
    """Return host and port of an address that was checked before."""
    parts = urlsplit(url)
    assert parts.hostname, "the rules file was checked"
    is_secure = parts.scheme == "https"
    return parts.hostname, parts.port or (
        http.client.HTTPS_PORT if is_secure else http.client.HTTP_PORT
    )


def _cut(connection: http.client.HTTPConnection) -> None:
    with suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
