"""The socket between tasks and the one who holds the IDs.

Whoever connects must prove that it knows the installation's secret, by the standard
library's challenge and response, before anything of it is read. What travels are
fingerprints that mean nothing without that secret.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import threading
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Client,
    Connection,
    answer_challenge,
    deliver_challenge,
)
from types import TracebackType
from typing import Self

from sinks.protocol.errors import RetryableError, TallyweirError
from sinks.seen_ids.claim import Candidates, Claim
from sinks.seen_ids.claim_holder import ClaimHolder
from sinks.seen_ids.claim_wire import (
    pack_answer,
    pack_failure,
    pack_question,
    unpack_answer,
    unpack_question,
)

#: Tasks that may connect at once, before the server gets to them.
_BACKLOG = 128
#: How long a task waits for an answer: the first of a round waits for the catalog.
_ANSWER_TIMEOUT_S = 300.0

Address = tuple[str, int]


def connection_secret(fingerprint_key: bytes) -> bytes:
    """Derive what both sides prove to know; it tells nothing about the key."""
    return hmac.digest(fingerprint_key, b"tallyweir claims", hashlib.sha256)


class ClaimServer:
    """Hands the questions of many tasks to a holder; used as a context manager.

    Args:
        holder: Answers.
        address: Where to listen; port 0 for any that is free.
        secret: As ``connection_secret`` gives it.
    """

    def __init__(self, holder: ClaimHolder, *, address: Address, secret: bytes) -> None:
        self._holder = holder
        self._secret = secret
        self._listener = socket.create_server(address, backlog=_BACKLOG)
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()
        self._closing = False

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="claims", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._closing = True
            for connection in self._connections:
                _shut_down(connection)
        # A thread that waits in accept() does not notice that its socket is closed.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            _send_at_once(accepted)
            connection = Connection(accepted.detach())
            with self._lock:
                if self._closing:
                    connection.close()
                    return
                self._connections.add(connection)
            threading.Thread(
                target=self._serve, args=(connection,), name="claims", daemon=True
            ).start()

    def _serve(self, connection: Connection) -> None:
        """Answer one worker until it goes away, which it does when it likes."""
        try:
            with suppress(EOFError, OSError, AuthenticationError):
                deliver_challenge(connection, self._secret)
                answer_challenge(connection, self._secret)
                while not self._closing:
                    connection.send_bytes(self._answer(connection.recv_bytes()))
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _answer(self, message: bytes) -> bytes:
        round_number, asked = unpack_question(message)
        try:
            return pack_answer(self._holder.ask(round_number, asked))
        except TallyweirError as error:
            return pack_failure(error)


class ClaimClient:
    """A worker's connection to the holder; opened when it is first needed, and kept.

    Args:
        address: Host and port of the server.
        secret: As ``connection_secret`` gives it.
    """

    def __init__(self, address: Address, secret: bytes) -> None:
        self.address = address
        self._secret = secret
        self._connection: Connection | None = None

    def ask(self, round_number: int, asked: Candidates) -> Claim:
        """Claim IDs, as ``ClaimHolder.ask`` does.

        Raises:
            RetryableError: ``CLAIMS_UNREACHABLE``: the driver is gone or does not
                answer.
            TallyweirError: As ``ClaimHolder.ask``.
        """
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.send_bytes(pack_question(round_number, asked))
            if not self._connection.poll(_ANSWER_TIMEOUT_S):
                raise TimeoutError(f"no answer for {_ANSWER_TIMEOUT_S:.0f} s")
            message = self._connection.recv_bytes()
        except (EOFError, OSError, AuthenticationError) as error:
            self.close()
            host, port = self.address
            raise RetryableError(
                "CLAIMS_UNREACHABLE",
                saw=f"The driver did not answer at {host}:{port} "
                f"({type(error).__name__} {error}).",
                why="Without it nobody knows which IDs were seen before.",
                fix="Nothing if the driver has ended; else let the executors reach "
                "the driver's host at every port, as Spark itself needs it.",
            ) from error
        return unpack_answer(message)

    def close(self) -> None:
        """Let go of the connection; the next question opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> Connection:
        connection = Client(self.address, authkey=self._secret)
        with socket.socket(fileno=socket.dup(connection.fileno())) as same:
            _send_at_once(same)
        return connection


def _send_at_once(connected: socket.socket) -> None:
    """Do not let the end of a message wait for the answer to its beginning."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _shut_down(connection: Connection) -> None:
    with (
        suppress(OSError),
        socket.socket(fileno=socket.dup(connection.fileno())) as same,
    ):
        same.shutdown(socket.SHUT_RDWR)
