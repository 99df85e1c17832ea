"""Asks a process of ours for its metrics and its health."""

from __future__ import annotations

import http.client
import socket


def free_port() -> int:
    """Return a port that nobody listens on at the moment."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and body; status 0 while nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()
