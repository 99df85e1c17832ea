"""The socket between tasks and the holder of the IDs, and the messages that it carries.

A client must prove that it knows the installation's secret, by the standard library's
challenge and response, before the server reads any question. Questions carry
fingerprints, which mean nothing without that secret. The server keeps a limited number
of connections that have not proved it yet; a new one replaces the oldest.

A message is a header and columns, one after the other, in little-endian byte order.
Columns of words begin at a multiple of eight bytes, since numpy uses them in place and
is slower on unaligned words. Both sides are of one release: a driver and its own tasks.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tallyweir.sinks.protocol.errors import RetryableError, TallyweirError
from tallyweir.sinks.protocol.vote_text import format_failure, parse_failure
from tallyweir.sinks.seen_ids.claim import Candidates, ClaimAnswer
from tallyweir.sinks.seen_ids.claim_holder import ClaimHolder

#: Tasks that may connect at once, before the server gets to them.
_BACKLOG = 128
#: How long a task waits for an answer. The first answer of a round waits for the
#: catalog.
_ANSWER_TIMEOUT_S = 300.0
#: How long a task tries to reach the driver's host.
_CONNECT_TIMEOUT_S = 30.0
#: How long each step of the proof may take, on either side. A working peer answers at
#: once; a driver that cannot accept leaves a task in its backlog.
_PROOF_TIMEOUT_S = 30.0
#: Connections that may be in the middle of the proof. A worker needs milliseconds for
#: it, so the connection that has taken longest is not a worker's.
_PROVING_MAX = 256
#: How long the server waits after a failed accept, as when no file descriptor is free.
_PAUSE_S = 0.1
#: A peer whose host is gone is noticed in half a minute.
_KEEPALIVE = (
    (socket.TCP_KEEPIDLE, 15),
    (socket.TCP_KEEPINTVL, 5),
    (socket.TCP_KEEPCNT, 3),
)

Address = tuple[str, int]


def connection_secret(fingerprint_key: bytes) -> bytes:
    """Derive the secret that both sides prove to know; it does not reveal the key."""
    return hmac.digest(fingerprint_key, b"tallyweir claims", hashlib.sha256)


class ClaimServer:
    """Passes the questions of many tasks to a holder; use it as a context manager.

    Args:
        holder: Answers the questions.
        address: Where to listen; port 0 chooses any free port.
        secret: The result of ``connection_secret``.
        on_failure: Called with the reason when no client can connect; called again
            only after a client has connected in between.
    """

    def __init__(
        self,
        holder: ClaimHolder,
        *,
        address: Address,
        secret: bytes,
        on_failure: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._holder = holder
        self._secret = secret
        self._on_failure = on_failure
        self._listener = socket.create_server(address, backlog=_BACKLOG)
        self._connections: set[Connection] = set()
        #: Connections that have not finished the proof yet, the oldest first.
        self._proving: dict[Connection, None] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="claims", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closing.set()
            for connection in self._connections:
                _shut_down(connection)
        # Closing a socket does not wake a thread that waits in accept().
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        """Accept workers until the end; one failure does not stop it."""
        is_failing = False
        while not self._closing.is_set():
            try:
                accepted, _ = self._listener.accept()
                self._let_in(accepted)
            except (OSError, RuntimeError) as error:
                # File descriptors or threads may run out for a while. Clients that
                # connect meanwhile wait in the backlog.
                if not is_failing and not self._closing.is_set():
                    self._on_failure(error)
                is_failing = True
                self._closing.wait(_PAUSE_S)
            else:
                is_failing = False

    def _let_in(self, accepted: socket.socket) -> None:
        """Give a connection a thread of its own, so that no other one waits for it."""
        with accepted:
            _make_ready(accepted)
            connection = Connection(accepted.detach())
        with self._lock:
            if self._closing.is_set():
                connection.close()
                return
            self._connections.add(connection)
            self._proving[connection] = None
            if len(self._proving) > _PROVING_MAX:
                oldest = next(iter(self._proving))
                del self._proving[oldest]
                _shut_down(oldest)
        try:
            threading.Thread(
                target=self._serve, args=(connection,), name="claims", daemon=True
            ).start()
        except RuntimeError:
            self._let_go(connection)
            raise

    def _let_go(self, connection: Connection) -> None:
        with self._lock:
            self._connections.discard(connection)
            self._proving.pop(connection, None)
        connection.close()

    def _serve(self, connection: Connection) -> None:
        """Answer one worker until it disconnects, which it may do at any time."""
        try:
            with suppress(EOFError, OSError, AuthenticationError):
                deliver_challenge(connection, self._secret)
                answer_challenge(connection, self._secret)
                _limit_waits(connection, 0.0)
                with self._lock:
                    self._proving.pop(connection, None)
                while not self._closing.is_set():
                    connection.send_bytes(self._answer(connection.recv_bytes()))
        finally:
            self._let_go(connection)

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
        secret: The result of ``connection_secret``.
    """

    def __init__(self, address: Address, secret: bytes) -> None:
        self.address = address
        self._secret = secret
        self._connection: Connection | None = None

    def ask(self, round_number: int, asked: Candidates) -> ClaimAnswer:
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
                why="Only the driver knows which IDs were seen.",
                fix="If the driver has ended, nothing. Otherwise, allow the "
                "executors to reach every port of the driver's host; Spark needs "
                "that too.",
            ) from error
        return unpack_answer(message)

    def close(self) -> None:
        """Close the connection; the next question opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> Connection:
        with socket.create_connection(
            self.address, timeout=_CONNECT_TIMEOUT_S
        ) as connected:
            connected.settimeout(None)
            _make_ready(connected)
            connection = Connection(connected.detach())
        try:
            answer_challenge(connection, self._secret)
            deliver_challenge(connection, self._secret)
            _limit_waits(connection, _ANSWER_TIMEOUT_S)
        except BaseException:
            connection.close()
            raise
        return connection


def _make_ready(connected: socket.socket) -> None:
    """Set a connection's options for the proof and for the time after it."""
    # Without this, the end of a message would wait for the answer to its beginning.
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connected.setsockopt(socket.IPPROTO_TCP, option, value)
    _limit_waits_of(connected, _PROOF_TIMEOUT_S)


def _limit_waits(connection: Connection, seconds: float) -> None:
    with socket.socket(fileno=socket.dup(connection.fileno())) as same:
        _limit_waits_of(same, seconds)


def _limit_waits_of(connected: socket.socket, seconds: float) -> None:
    """Let a read or write fail if it makes no progress for so long; 0 for no limit.

    The kernel does it, because the standard library's connections have no timeouts.
    """
    whole = int(seconds)
    interval = struct.pack("ll", whole, int((seconds - whole) * 1_000_000))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected.setsockopt(socket.SOL_SOCKET, option, interval)


def _shut_down(connection: Connection) -> None:
    with (
        suppress(OSError),
        socket.socket(fileno=socket.dup(connection.fileno())) as same,
    ):
        same.shutdown(socket.SHUT_RDWR)


#: Round, number of rows, and flags for the optional columns.
_QUESTION = struct.Struct("<qqq")
_HAS_HASHES, _HAS_ONLY_CORRECTS = 1, 2
_ANSWERED, _FAILED = bytes(8), b"\x01"


def pack_question(round_number: int, asked: Candidates) -> bytes:
    """Write a question of a round."""
    columns: list[npt.NDArray[Any]] = [
        asked.place,
        asked.offset,
        asked.bucket,
        asked.hi,
        asked.lo,
    ]
    flags = 0
    if asked.payload_hashes is not None:
        flags |= _HAS_HASHES
        columns.append(asked.payload_hashes)
    only_corrects = asked.only_corrects
    if only_corrects is not None:
        flags |= _HAS_ONLY_CORRECTS
    header = _QUESTION.pack(round_number, len(asked), flags)
    parts: list[bytes | memoryview] = [header, *map(_packed, columns)]
    if only_corrects is not None:
        parts.append(_packed(only_corrects))
    return b"".join(parts)


def unpack_question(message: bytes) -> tuple[int, Candidates]:
    """Read what ``pack_question`` wrote."""
    round_number, rows, flags = _QUESTION.unpack_from(message)
    columns = _columns(message, _QUESTION.size, rows)
    return round_number, Candidates(
        place=next(columns).view(np.int64),
        offset=next(columns).view(np.int64),
        bucket=next(columns).view(np.int64),
        hi=next(columns),
        lo=next(columns),
        payload_hashes=next(columns) if flags & _HAS_HASHES else None,
        only_corrects=np.frombuffer(message, dtype=np.bool_, offset=len(message) - rows)
        if flags & _HAS_ONLY_CORRECTS
        else None,
    )


def pack_answer(answer: ClaimAnswer) -> bytes:
    """Write an answer."""
    return b"".join([_ANSWERED, _packed(answer.buckets), _packed(answer.classes)])


def pack_failure(error: TallyweirError) -> bytes:
    """Write an error in place of an answer."""
    return _FAILED + format_failure(error).encode()


def unpack_answer(message: bytes) -> ClaimAnswer:
    """Read an answer.

    Raises:
        TallyweirError: The error that was packed instead.
    """
    if message[:1] == _FAILED:
        raise parse_failure(message[1:].decode())
    rows, start = (len(message) - len(_ANSWERED)) // 9, len(_ANSWERED)
    return ClaimAnswer(
        classes=np.frombuffer(message, dtype=np.uint8, offset=start + 8 * rows),
        buckets=np.frombuffer(message, dtype="<i8", count=rows, offset=start),
    )


def _packed(column: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(column).data.cast("B")


def _columns(message: bytes, start: int, rows: int) -> Iterator[npt.NDArray[np.uint64]]:
    while True:
        yield np.frombuffer(message, dtype="<u8", count=rows, offset=start)
        start += 8 * rows
