"""A network between drivers and one Postgres server that can be cut at a message.

The proxy splits what a client sends into messages, and names those that matter. It
understands just enough of the frontend protocol to know where a transaction ends:
framing, statements in simple queries, and prepared statements that are run by name.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tallyweir.services.dev.chaos.plan import Cut, CutSide, Statement

_STARTUP_HEADER = struct.Struct("!ii")
_LENGTH = struct.Struct("!i")
_TYPED_HEADER_BYTES = 5
_STARTUP_HEADER_BYTES = 8

#: Requests of eight bytes that a client may send before the startup message.
_TLS_REQUEST = 80_877_103
_GSS_REQUEST = 80_877_104

#: The beginning of a statement that only publish transactions contain.
_LEDGER_ROW = b"INSERT INTO tallyweir.batch "


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a client.

    Attributes:
        raw: All of its bytes.
        statement: What the server does on it, if that is one of the named statements.
    """

    raw: bytes
    statement: Statement | None = None


class ClientStream:
    """Splits what one client sends into messages."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_started = False
        self._prepared: dict[bytes, bytes] = {}
        self._bound = b""
        self._publishes = False

    def feed(self, data: bytes) -> list[Message]:
        """Take bytes in; return the messages that are now complete, in order."""
        self._rest += data
        messages = []
        while (size := self._next_size()) is not None and len(self._rest) >= size:
            raw, self._rest = self._rest[:size], self._rest[size:]
            messages.append(self._read(raw))
        return messages

    def _next_size(self) -> int | None:
        if not self._is_started:
            if len(self._rest) < _STARTUP_HEADER_BYTES:
                return None
            size: int = _LENGTH.unpack_from(self._rest)[0]
            return size
        if len(self._rest) < _TYPED_HEADER_BYTES:
            return None
        length: int = _LENGTH.unpack_from(self._rest, 1)[0]
        return 1 + length

    def _read(self, raw: bytes) -> Message:
        if not self._is_started:
            _, code = _STARTUP_HEADER.unpack_from(raw)
            self._is_started = code not in (_TLS_REQUEST, _GSS_REQUEST)
            return Message(raw=raw)
        body = raw[_TYPED_HEADER_BYTES:]
        match raw[:1]:
            case b"c":
                return Message(raw=raw, statement=Statement.COPY_END)
            case b"Q":
                return Message(raw=raw, statement=self._name(body))
            case b"P":
                name, _, rest = body.partition(b"\0")
                self._prepared[name] = rest.partition(b"\0")[0]
            case b"B":
                _, _, rest = body.partition(b"\0")
                self._bound = self._prepared.get(rest.partition(b"\0")[0], b"")
            case b"E":
                return Message(raw=raw, statement=self._name(self._bound))
        return Message(raw=raw)

    def _name(self, text: bytes) -> Statement | None:
        words = b" ".join(text.rstrip(b"\0; \n").split())
        if words.startswith(_LEDGER_ROW):
            self._publishes = True
        publishes = self._publishes
        upper = words.upper()
        if upper.startswith(b"PREPARE TRANSACTION"):
            self._publishes = False
            return Statement.PREPARE
        if upper.startswith(b"COMMIT PREPARED"):
            return Statement.COMMIT_PREPARED
        if upper == b"COMMIT":
            self._publishes = False
            return Statement.PUBLISH_COMMIT if publishes else Statement.COMMIT
        if upper == b"ROLLBACK":
            self._publishes = False
        return None


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
