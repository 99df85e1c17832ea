"""A TCP proxy before Postgres that loses the answer to a COMMIT."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_CHUNK_BYTES = 1 << 16

#: A simple query of the one word, as psycopg sends it: type, length, text, NUL.
_COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"

_ANSWER_TIMEOUT_S = 30.0


class CommitFault(Enum):
    """What to do with the next COMMIT that a client sends."""

    #: The server never sees it and rolls back.
    DROP = "drop"
    #: The server commits; the client's connection breaks instead of an answer.
    CUT_AFTER_COMMIT = "cut_after_commit"
    #: The client's connection breaks at once, while the server may still commit.
    CUT_WHILE_COMMITTING = "cut_while_committing"


class CommitProxy:
    """Forwards connections to Postgres; breaks one of them when armed."""

    def __init__(self, dsn: str) -> None:
        parameters = conninfo_to_dict(dsn)
        self._upstream = (str(parameters["host"]), int(str(parameters["port"])))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.dsn = make_conninfo(
            dsn,
            host="127.0.0.1",
            port=self._listener.getsockname()[1],
            sslmode="disable",
            gssencmode="disable",
        )
        self._lock = threading.Lock()
        self._fault: CommitFault | None = None
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def arm(self, fault: CommitFault) -> None:
        """Break the next connection that sends COMMIT."""
        with self._lock:
            self._fault = fault

    @property
    def armed(self) -> bool:
        """Whether the fault is still to come."""
        return self._fault is not None

    def close(self) -> None:
        # A thread that waits in accept() wakes up by shutdown only.
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
        with client, socket.create_connection(self._upstream) as server:
            answers = threading.Thread(
                target=_forward, args=(server, client), daemon=True
            )
            answers.start()
            while data := _receive(client):
                fault = self._take_fault() if data.endswith(_COMMIT) else None
                if fault is not None:
                    self._break(fault, data, client, server)
                    break
                server.sendall(data)
            _shut(server)
            answers.join()
            _shut(client)

    def _take_fault(self) -> CommitFault | None:
        with self._lock:
            fault, self._fault = self._fault, None
            return fault

    def _break(
        self,
        fault: CommitFault,
        data: bytes,
        client: socket.socket,
        server: socket.socket,
    ) -> None:
        # The client hears nothing from here on.
        client.shutdown(socket.SHUT_RDWR)
        if fault is CommitFault.DROP:
            return
        server.sendall(data)
        if fault is CommitFault.CUT_AFTER_COMMIT:
            # The thread that carries answers ends when it has read this one and
            # cannot pass it on.
            _wait_for_end(server)


def _wait_for_end(server: socket.socket) -> None:
    """Ask the server to end the session, and wait until it has."""
    server.sendall(b"X\x00\x00\x00\x04")
    server.settimeout(_ANSWER_TIMEOUT_S)
    while _receive(server):
        pass


def _forward(source: socket.socket, target: socket.socket) -> None:
    while data := _receive(source):
        try:
            target.sendall(data)
        except OSError:
            return


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(_CHUNK_BYTES)
    except OSError:
        return b""


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


@contextmanager
def commit_proxy(dsn: str) -> Iterator[CommitProxy]:
    """Run a proxy for the block."""
    proxy = CommitProxy(dsn)
    try:
        yield proxy
    finally:
        proxy.close()
