"""The HTTP server of all services: its socket, its signals and its limits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from http import HTTPStatus

import httptools
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)

from tallyweir.services.process.refusals import RefusedError
from tallyweir.sinks.host_names import HostNames
from tallyweir.sinks.protocol.errors import ConfigurationError

#: The limit for a request's line, headers, trailers and chunk extensions together.
HEAD_BYTES_MAX = 32_768
HEADERS_MAX = 100
#: The time for a head, and for the rest of a request that is already answered.
HEAD_TIMEOUT_S = 10.0
#: How much of a body is read after its answer, so that the connection can stay open.
LEFT_BYTES_MAX = 65_536
#: How many requests of a connection may wait for the answers to earlier ones.
QUEUED_MAX = 32
KEEP_ALIVE_S = 75
BACKLOG = 2_048

_PIECE_BYTES = 4_096
#: The most bytes of a chunk's frame: its size in 16 digits, and two line ends.
_CHUNK_FRAME_BYTES = 20


class DrainingServer(uvicorn.Server):
    """Ends with exit code 0 on a signal, while uvicorn would die of the signal.

    Args:
        application: The application that answers requests.
        names: The server's names in addition to its address and loopback's names.
        drain_timeout_s: How long requests in flight may take after the signal.
        on_end: Called when a signal tells the server to end.
    """

    def __init__(
        self,
        application: ASGIApp,
        *,
        names: Iterable[str],
        drain_timeout_s: int,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_end = on_end
        # uvicorn's log lines are unstructured; ours say the same.
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
        super().__init__(
            uvicorn.Config(
                _NamedApplication(application, HostNames(names)),
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
        # After a second signal the server does not wait for requests in flight.
        self.force_exit = self.should_exit
        self.should_exit = True
        self._on_end()


class _NamedApplication:
    """Passes on requests that name this server as their host; see ``HostNames``."""

    def __init__(self, application: ASGIApp, names: HostNames) -> None:
        self._application = application
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refuse(scope) if scope["type"] == "http" else None
        if refused is None:
            await self._application(scope, receive, send)
            return
        answer = JSONResponse(
            refused.as_problem(), refused.status, {"connection": "close"}
        )
        await answer(scope, receive, send)

    def _refuse(self, scope: Message) -> RefusedError | None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if not hosts and scope["http_version"] == "1.0":
            # No browser sends such a request.
            return None
        status = HTTPStatus.MISDIRECTED_REQUEST
        if len(hosts) != 1:
            status = HTTPStatus.BAD_REQUEST
        elif self._names.know(
            hosts[0].decode("latin-1"), (scope["server"] or ("",))[0]
        ):
            return None
        return RefusedError(
            "HOST_UNKNOWN",
            status=status,
            saw=f"The request is for {b', '.join(hosts)[:80].decode('latin-1')!r}.",
            why="A page of another site could read this service under a name of its "
            "own.",
            fix="Use a name of this service; --public-name adds one.",
        )


class _Part(Enum):
    """The part of a request that the connection is in."""

    HEAD = "line and headers"
    BODY = "body and trailers"
    BETWEEN = "none"


class BoundedHttpProtocol(HttpToolsProtocol):
    """Bounds how much the process keeps for a connection, and for how long.

    It counts bytes as they arrive, because the parser buffers half a header silently.
    It answers a refused request only if the client can tell which of its requests the
    answer is for. It closes the connection in any case.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request's headers."""
        super().connection_made(transport)
        self._part = _Part.HEAD
        self._requests = 0  # the complete ones
        # The current request: bytes of its head, and all bytes outside its body.
        self._head_bytes = 0
        self._spent_bytes = 0
        # The bytes of a body that arrive after its answer.
        self._left_bytes = 0
        # The piece that is being parsed: its bytes of body, and its chunks.
        self._body_bytes = 0
        self._chunks = 0
        self._is_deaf = False
        self._refusal = HTTPStatus.BAD_REQUEST
        self._timer: asyncio.TimerHandle | None = None
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse in pieces, so that no limit is exceeded by more than one piece."""
        at = 0
        while at < len(data) and not (self._is_deaf or self.transport.is_closing()):
            if self._part is _Part.BETWEEN:
                self._begin_head()
            size = _PIECE_BYTES
            if self._part is _Part.HEAD:
                size = min(size, HEAD_BYTES_MAX - self._spent_bytes)
            self._parse(data[at : at + size])
            at += size
        if self._part is _Part.HEAD and self._timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._part is _Part.BETWEEN:
            self._begin_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep headers, not trailers: the application has already read the headers."""
        if self._part is _Part.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Pass the request on, unless it has too many headers or predecessors.

        Raises:
            HttpParserError: The parser stops, and the connection ends.
        """
        if len(self.headers) > HEADERS_MAX:
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise httptools.HttpParserError("too many headers")
        if len(self.pipeline) >= QUEUED_MAX:
            raise httptools.HttpParserError("too many requests before an answer")
        self._part = _Part.BODY
        self._head_bytes = self._spent_bytes
        self._stop_timer()
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """Count a chunk, because its frame does not count as spent."""
        self._chunks += 1

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self.cycle.response_complete:
            self._left_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._requests += 1
        self._part = _Part.BETWEEN
        self._stop_timer()

    def on_response_complete(self) -> None:
        """Start the timer for the rest of a request that is already answered."""
        super().on_response_complete()
        if self._part is _Part.BODY and self.cycle.response_complete:
            self._start_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse input that the parser cannot read or that exceeds a limit."""
        newest: RequestResponseCycle | None = self.cycle
        is_waiting = newest is not None and not newest.response_complete
        if self._part is not _Part.BODY and is_waiting:
            # The client would take it for the answer to a request that was accepted.
            self._is_deaf = True
            self.cycle.keep_alive = False
            return
        has_answer = self._part is _Part.BODY and (
            bool(self.pipeline) or self.cycle.response_started
        )
        if not has_answer:
            self.transport.write(_refusal(self._refusal, msg))
        if self._part is _Part.BODY:
            self.cycle.disconnected = True
        self.transport.close()

    def _begin_head(self) -> None:
        self._part = _Part.HEAD
        self._spent_bytes = self._left_bytes = 0

    def _parse(self, piece: bytes) -> None:
        part, request = self._part, self._requests
        self._body_bytes = self._chunks = 0
        super().data_received(piece)
        if self.transport.is_closing() or self._is_deaf:
            return
        if self._part is part and self._requests == request:
            frames = self._body_bytes + self._chunks * _CHUNK_FRAME_BYTES
            spent = self._spent_bytes + len(piece) - frames
            floor = 0 if part is _Part.HEAD else self._head_bytes
            self._spent_bytes = max(spent, floor)
        if self._spent_bytes >= HEAD_BYTES_MAX and self._part is not _Part.BETWEEN:
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self.send_400_response("Headers too large.")
        elif self._left_bytes > LEFT_BYTES_MAX:
            self.transport.close()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()


def _refusal(status: HTTPStatus, text: str) -> bytes:
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "content-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(text)}\r\n"
        "connection: close\r\n\r\n"
        f"{text}"
    ).encode("ascii")


def listen(host: str, port: int) -> socket.socket:
    """Open the socket that a server listens on; port 0 takes any free port.

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
            why="No client could reach the service.",
            fix="Choose another --host or --port, or stop what listens there.",
        ) from exc
