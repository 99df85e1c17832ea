"""Serves ``/metrics``, ``/livez`` and ``/readyz`` for drivers and services.

Drivers and services both need it and may not import each other, so it lives below
them, with the other modules that every process shares. It knows no Kafka and no
Postgres: the process supplies the metrics and the checks.
"""

from __future__ import annotations

import io
import os
import platform
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import choose_encoder

from tallyweir.sinks.host_names import PUBLIC_NAMES_VARIABLE, HostNames
from tallyweir.sinks.protocol.errors import ConfigurationError

PORT_VARIABLE = "TALLYWEIR_METRICS_PORT"
HOST_VARIABLE = "TALLYWEIR_METRICS_HOST"
#: The network sees a pipeline's metrics only if the operator asks for it.
_DEFAULT_HOST = "127.0.0.1"
_PORT_MAX = 65_535
#: No client holds its thread for longer, however it sends and reads.
_CLIENT_TIMEOUT_S = 10.0
_CLIENTS_MAX = 16
#: Limit on a request's line and headers together.
_HEAD_BYTES_MAX = 32_768
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_TEXT = "text/plain; charset=utf-8"
#: How long the end of a process may have to wait for the endpoint to stop.
_STOP_POLL_S = 0.1

#: A check returns what is wrong, or None. The endpoint calls it in a thread of its own:
#: it must neither block nor raise.
Check = Callable[[], str | None]


class Heartbeat:
    """A check that fails when an expected event is overdue.

    Args:
        silence_max_s: Longest time allowed between two beats.
        clock: Returns seconds, monotonic.
    """

    def __init__(
        self, *, silence_max_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._silence_max_s = silence_max_s
        self._clock = clock
        self._beat_at: float | None = None

    def beat(self) -> None:
        """Note that the event has happened."""
        self._beat_at = self._clock()

    def check(self) -> str | None:
        """Return what is wrong, or None."""
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
    """Serve within the block, if the environment asks for it.

    Args:
        registry: The process's metrics; ``tallyweir_build_info`` is added.
        live: Checks by name; while one fails, the process should be restarted.
        ready: Checks by name; while one fails, the process does not do its work.
        environment: Environment of the process.

    Yields:
        Host and port; None when ``TALLYWEIR_METRICS_PORT`` is not set.

    Raises:
        ConfigurationError: ``METRICS_PORT_INVALID``, ``METRICS_PORT_TAKEN`` or
            ``PUBLIC_NAME_INVALID``.
    """
    port = _read_port(environment)
    if port is None:
        yield None
        return
    host = environment.get(HOST_VARIABLE) or _DEFAULT_HOST
    _add_build_info(registry)
    try:
        server = _Server(
            (host, port),
            registry,
            {"/livez": live, "/readyz": ready},
            HostNames([host, *environment.get(PUBLIC_NAMES_VARIABLE, "").split()]),
        )
    except OSError as error:
        raise ConfigurationError(
            "METRICS_PORT_TAKEN",
            saw=f"Cannot listen on {host}:{port}: {error.strerror or error}.",
            why=f"{PORT_VARIABLE} and {HOST_VARIABLE} set this address.",
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
            why="It must be a port number; 0 selects any free port.",
            fix="Correct it, or unset it to serve no metrics.",
        )
    return int(text)


def _add_build_info(registry: CollectorRegistry) -> None:
    try:
        built = version("tallyweir")
    except PackageNotFoundError:
        # The process runs from its sources, as with the launcher.
        built = "source"
    Gauge(
        "tallyweir_build_info",
        "Always 1; what runs here is in the labels.",
        ["version", "python"],
        registry=registry,
    ).labels(built, platform.python_version()).set(1)


class _Server(ThreadingHTTPServer):
    """Holds the data that its handlers answer from, and limits their number."""

    def __init__(
        self,
        address: tuple[str, int],
        registry: CollectorRegistry,
        checks: Mapping[str, Mapping[str, Check]],
        names: HostNames,
    ) -> None:
        self.registry = registry
        self.checks = checks
        self.names = names
        self._room = threading.BoundedSemaphore(_CLIENTS_MAX)
        super().__init__(address, _Handler)

    def process_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client: object
    ) -> None:
        """Answer in a thread, or close the connection if too many are open."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client)
        else:
            self.shutdown_request(request)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client: object
    ) -> None:
        try:
            super().process_request_thread(request, client)
        finally:
            self._room.release()


class _Handler(BaseHTTPRequestHandler):
    """Answers GET on three paths; machines read only the status."""

    server: _Server
    timeout = _CLIENT_TIMEOUT_S
    server_version = "tallyweir"
    sys_version = ""

    def handle(self) -> None:
        """Read a request's head within its bounds, and answer it."""
        head = self._read_head()
        if head is not None:
            self.rfile = io.BufferedReader(io.BytesIO(head))
            self.handle_one_request()

    def _read_head(self) -> bytes | None:
        """Return the head as far as it came; None if it is too large or too slow."""
        head = b""
        until = time.monotonic() + _CLIENT_TIMEOUT_S
        while _HEAD_END.search(head) is None:
            left_s = until - time.monotonic()
            if len(head) >= _HEAD_BYTES_MAX or left_s <= 0:
                return None
            self.connection.settimeout(left_s)
            try:
                part = self.connection.recv(_HEAD_BYTES_MAX - len(head))
            except OSError:
                return None
            if not part:
                break
            head += part
        self.connection.settimeout(_CLIENT_TIMEOUT_S)
        return head

    def _is_for_us(self) -> bool:
        hosts = self.headers.get_all("Host", [])
        if not hosts:
            # No browser sends a request like this.
            return self.request_version != "HTTP/1.1"
        return len(hosts) == 1 and self.server.names.know(
            hosts[0], self.connection.getsockname()[0]
        )

    def do_GET(self) -> None:
        if not self._is_for_us():
            self._answer(
                HTTPStatus.MISDIRECTED_REQUEST, _TEXT, b"not a name of this server\n"
            )
            return
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, content_type, encode(self.server.registry))
        elif path in self.server.checks:
            status, text = _run_checks(self.server.checks[path])
            self._answer(status, _TEXT, text.encode())
        else:
            self._answer(HTTPStatus.NOT_FOUND, _TEXT, b"not found\n")

    def log_message(self, *_: object) -> None:
        """Write nothing: a probe every few seconds is not worth a line."""

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
