"""A network between drivers and one Postgres server that can be cut at a message."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tallyweir.services.dev.chaos.plan import Cut, CutSide
from tallyweir.services.dev.chaos.wire_messages import ClientStream, Message

_CHUNK_BYTES = 1 << 18
_ANSWER_TIMEOUT_S = 30.0
_TERMINATE = b"X\x00\x00\x00\x04"
#: Makes closing a socket send RST instead of FIN.
_NO_LINGER = struct.pack("ii", 1, 0)


class WireProxy:
    """Forwards connections to one server; breaks one of them when armed.

    Args:
        dsn: The server behind the proxy, which keeps its address over restarts.

    Attributes:
        dsn: The same database through the proxy.
    """

    def __init__(self, dsn: str) -> None:
        parameters = conninfo_to_dict(dsn)
        self._upstream = (str(parameters["host"]), int(str(parameters["port"])))
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.dsn = make_conninfo(
            dsn,
            host="127.0.0.1",
            port=self._listener.getsockname()[1],
            # The proxy cannot read encrypted messages.
            sslmode="disable",
            gssencmode="disable",
        )
        self._lock = threading.Lock()
        self._cut: Cut | None = None
        self._to_pass = 0
        self._is_taken = False
        self._is_over = threading.Event()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def arm(self, cut: Cut) -> None:
        """Cut the connection that next sends the described message."""
        with self._lock:
            self._is_over.clear()
            self._is_taken = False
            self._cut = cut
            self._to_pass = cut.skip

    def await_cut(self, timeout_s: float) -> bool:
        """Wait until the armed cut is over; tell whether it is.

        By then the server has acted on the message, if the cut lets it through.
        """
        return self._is_over.wait(timeout_s)

    def disarm(self) -> bool:
        """Let everything pass again; tell whether the cut happened before."""
        with self._lock:
            self._cut = None
            return self._is_taken

    def close(self) -> None:
        """Accept no more connections; open ones last until client or server ends."""
        # Only a shutdown wakes a thread that waits in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection(self._upstream)
            except OSError:
                # The server is down; the client sees its connection closed.
                return
            with server:
                answers = threading.Thread(
                    target=_forward, args=(server, client), daemon=True
                )
                answers.start()
                self._carry(client, server)
                _shut(server)
                answers.join(_ANSWER_TIMEOUT_S)
                _shut(client)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        stream = ClientStream()
        while data := _receive(client):
            passed = []
            for message in stream.feed(data):
                cut = self._take_cut(message)
                if cut is None:
                    passed.append(message.raw)
                    continue
                _send(server, b"".join(passed))
                _break(cut.side, message, client, server)
                self._is_over.set()
                return
            if not _send(server, b"".join(passed)):
                return

    def _take_cut(self, message: Message) -> Cut | None:
        if message.statement is None:
            return None
        with self._lock:
            if self._cut is None or self._cut.statement is not message.statement:
                return None
            if self._to_pass > 0:
                self._to_pass -= 1
                return None
            cut, self._cut = self._cut, None
            self._is_taken = True
            return cut


def _break(
    side: CutSide, message: Message, client: socket.socket, server: socket.socket
) -> None:
    """Break a connection at a message, in the way that ``side`` names."""
    if side is CutSide.RESET:
        _send(server, message.raw)
        for end in (client, server):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        _shut(client)
        return
    # The client hears nothing from here on.
    _shut(client)
    if side is CutSide.BEFORE:
        return
    _send(server, message.raw)
    # The server answers in order, so it has acted on the message when it hangs up.
    # The thread that carries answers ends when it cannot pass one on.
    _send(server, _TERMINATE)
    server.settimeout(_ANSWER_TIMEOUT_S)
    while _receive(server):
        pass


def _forward(source: socket.socket, target: socket.socket) -> None:
    while data := _receive(source):
        if not _send(target, data):
            return
    # The server has hung up: the client must not wait for an answer.
    _shut(target)


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(_CHUNK_BYTES)
    except OSError:
        return b""


def _send(target: socket.socket, data: bytes) -> bool:
    try:
        target.sendall(data)
    except OSError:
        return False
    return True


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def wire_proxy(dsn: str) -> Iterator[WireProxy]:
    """Run a proxy for the block."""
    proxy = WireProxy(dsn)
    try:
        yield proxy
    finally:
        proxy.close()
