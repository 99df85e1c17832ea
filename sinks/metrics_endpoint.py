"""Serves ``/metrics``, ``/livez`` and ``/readyz`` for any process of ours.

Drivers and services both need it and may not import each other, so it lies below
them, beside what else every process shares. It knows no Kafka and no Postgres: what
is counted and what is asked come from the process.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import choose_encoder

from sinks.protocol.errors import ConfigurationError

PORT_VARIABLE = "TALLYWEIR_METRICS_PORT"
HOST_VARIABLE = "TALLYWEIR_METRICS_HOST"
#: Numbers about a pipeline are nobody's business on the network unless asked for.
_DEFAULT_HOST = "127.0.0.1"
_PORT_MAX = 65_535
#: A client that sends nothing does not hold its thread for longer.
_CLIENT_TIMEOUT_S = 10.0
#: How long the end of a process may wait for the endpoint's at most.
_STOP_POLL_S = 0.1

#: Says what is wrong, or None. Called in a thread of the endpoint's: it must neither
#: block nor raise.
Check = Callable[[], str | None]


class Heartbeat:
    """A check that fails when something has not happened for too long.

    Args:
        silence_max_s: How long it may be away.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, *, silence_max_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._silence_max_s = silence_max_s
        self._clock = clock
        self._beat_at: float | None = None

    def beat(self) -> None:
        """Note that it has happened."""
        self._beat_at = self._clock()

    def check(self) -> str | None:
        """Say what is wrong, if anything is."""
        if self._beat_at is None:
            return "not yet"
        silence_s = self._clock() - self._beat_at
        if silence_s > self._silence_max_s:
            return f"not for {silence_s:.0f} s"
        return None


@contextmanager
def serve_metrics(
    registry: CollectorRegistry,
    *,
    live: Mapping[str, Check],
    ready: Mapping[str, Check],
    environment: Mapping[str, str] = os.environ,
) -> Iterator[tuple[str, int] | None]:
    """Serve in the block, if the environment asks for it.

    Args:
        registry: The process's metrics; ``tallyweir_build_info`` is added.
        live: Checks by name; while one fails the process should be started again.
        ready: Checks by name; while one fails the process does not do its work.
        environment: Of the process.

    Yields:
        Host and port; None when ``TALLYWEIR_METRICS_PORT`` is not set.

    Raises:
        ConfigurationError: ``METRICS_PORT_INVALID`` or ``METRICS_PORT_TAKEN``.
    """
    port = _read_port(environment)
    if port is None:
        yield None
        return
    host = environment.get(HOST_VARIABLE) or _DEFAULT_HOST
    _add_build_info(registry)
    try:
        server = _Server((host, port), registry, {"/livez": live, "/readyz": ready})
    except OSError as error:
        raise ConfigurationError(
            "METRICS_PORT_TAKEN",
            saw=f"Cannot listen on {host}:{port}: {error.strerror or error}.",
            why=f"{PORT_VARIABLE} and {HOST_VARIABLE} ask for it.",
            fix="Free the port or choose another; each process needs its own.",
        ) from error
    thread = threading.Thread(
        target=server.serve_forever, args=(_STOP_POLL_S,), name="metrics", daemon=True
    )
    thread.start()
    try:
        yield host, server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _read_port(environment: Mapping[str, str]) -> int | None:
    text = environment.get(PORT_VARIABLE)
    if not text:
        return None
    if not text.isdecimal() or int(text) > _PORT_MAX:
        raise ConfigurationError(
            "METRICS_PORT_INVALID",
            saw=f"{PORT_VARIABLE} is {text!r}.",
            why="It must be a port; 0 takes any that is free.",
            fix="Correct it, or unset it to serve no metrics.",
        )
    return int(text)


def _add_build_info(registry: CollectorRegistry) -> None:
    try:
        built = version("tallyweir")
    except PackageNotFoundError:
        # Run from its sources, as the launcher does.
        built = "source"
    Gauge(
        "tallyweir_build_info",
        "Always 1; what runs here is in the labels.",
        ["version", "python"],
        registry=registry,
    ).labels(built, platform.python_version()).set(1)


class _Server(ThreadingHTTPServer):
    """Knows what its handlers answer from."""

    def __init__(
        self,
        address: tuple[str, int],
        registry: CollectorRegistry,
        checks: Mapping[str, Mapping[str, Check]],
    ) -> None:
        self.registry = registry
        self.checks = checks
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET on three paths; machines look at the status only."""

    server: _Server
    timeout = _CLIENT_TIMEOUT_S
    server_version = "tallyweir"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, content_type, encode(self.server.registry))
        elif path in self.server.checks:
            status, text = _run_checks(self.server.checks[path])
            self._answer(status, "text/plain; charset=utf-8", text.encode())
        else:
            self._answer(
                HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"not found\n"
            )

    def log_message(self, *_: object) -> None:
        """Write nothing: a probe every few seconds is no event."""

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _run_checks(checks: Mapping[str, Check]) -> tuple[HTTPStatus, str]:
    """Return the HTTP status and a line for each check."""
    lines, status = [], HTTPStatus.OK
    for name, check in checks.items():
        problem = check()
        if problem is None:
            lines.append(f"[+]{name} ok")
        else:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            lines.append(f"[-]{name} failed: {problem}")
    return status, "\n".join(
        [*lines, "ok" if status == HTTPStatus.OK else "failed", ""]
    )
