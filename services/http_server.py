"""An HTTP server for any service of ours: its socket, its signals, and its limits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sinks.protocol.errors import ConfigurationError

#: Of a request's line and headers together.
HEAD_BYTES_MAX = 32_768
HEAD_TIMEOUT_S = 10.0
KEEP_ALIVE_S = 75
BACKLOG = 2_048


class DrainingServer(uvicorn.Server):
    """Ends with exit code 0 on a signal, where uvicorn would die of it.

    Args:
        application: What answers.
        drain_timeout_s: How long requests in flight may take once it is to end.
        on_end: Called when it is told to end.
    """

    def __init__(
        self,
        application: Callable[..., object],
        *,
        drain_timeout_s: int,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_end = on_end
        # The server's own lines are for people; ours say the same.
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
        super().__init__(
            uvicorn.Config(
                application,
                loop="uvloop",
                http=BoundedHttpProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=drain_timeout_s,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        yield

    def _end(self) -> None:
        # The second signal does not wait for requests in flight.
        self.force_exit = self.should_exit
        self.should_exit = True
        self._on_end()


class BoundedHttpProtocol(HttpToolsProtocol):
    """Closes connections whose headers are too large, or take too long."""

    # While the headers of a request are incomplete, their bytes so far are counted.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the first request's headers their time."""
        super().connection_made(transport)
        self._head_bytes = 0
        self._is_in_head = True
        self._head_timer: asyncio.TimerHandle | None = None
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._is_in_head or self.transport.is_closing():
            return
        if self._head_bytes > HEAD_BYTES_MAX:
            self.send_400_response("Headers too large.")
        elif self._head_timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        """Begin to count a request's headers."""
        super().on_message_begin()
        self._is_in_head = True

    def on_headers_complete(self) -> None:
        """Stop counting: what follows is the body."""
        self._is_in_head = False
        self._head_bytes = 0
        self._stop_timer()
        super().on_headers_complete()

    def _start_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()


def listen(host: str, port: int) -> socket.socket:
    """Open the socket that a server answers at; port 0 takes any that is free.

    Raises:
        ConfigurationError: ``ADDRESS_UNUSABLE``.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as exc:
        raise ConfigurationError(
            "ADDRESS_UNUSABLE",
            saw=f"Cannot listen on {host}, port {port} ({exc}).",
            why="Nobody could reach the service.",
            fix="Choose another --host or --port, or stop what listens there.",
        ) from exc
