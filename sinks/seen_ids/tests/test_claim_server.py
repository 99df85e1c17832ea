"""Tasks and the holder talk over real sockets, and nobody keeps anybody waiting."""

from __future__ import annotations

import errno
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Client

import numpy as np
import pytest

from tallyweir.sinks.protocol.errors import FatalError, RetryableError
from tallyweir.sinks.seen_ids import claim_server
from tallyweir.sinks.seen_ids.claim import Candidates, RowClass
from tallyweir.sinks.seen_ids.claim_holder import ClaimHolder, RoundTerms
from tallyweir.sinks.seen_ids.claim_server import (
    Address,
    ClaimClient,
    ClaimServer,
    connection_secret,
)
from tallyweir.sinks.seen_ids.segment import SegmentView
from tallyweir.sinks.seen_ids.tests.catalog import Row, candidates_of, run_of, view_of

NEW, DUPLICATE = RowClass.SURVIVOR, RowClass.DUPLICATE
A, C = (5, 1), (9, 1)
_HOST = "127.0.0.1"
_SECRET = connection_secret(b"k" * 16)
_TERMS = RoundTerms(through_sequence=4, live_from_bucket=0, corrects=False)
_PATIENCE_S = 60.0


def _open_view(_terms: RoundTerms, _held: object) -> SegmentView:
    return view_of(run_of([C]))


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Every thread has ended after a test, and every socket was closed.

    A socket that was not warns when it is collected, and warnings are errors here.
    """
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(_PATIENCE_S)
        assert not thread.is_alive(), thread.name
    gc.collect()


@contextmanager
def _served(
    holder: ClaimHolder, on_failure: Callable[[Exception], None] = lambda _: None
) -> Iterator[Address]:
    address = (_HOST, 0)
    with ClaimServer(
        holder, address=address, secret=_SECRET, on_failure=on_failure
    ) as server:
        yield _HOST, server.port


@pytest.fixture
def holder() -> Iterator[ClaimHolder]:
    """A holder whose first round has begun."""
    with ClaimHolder(_open_view) as holder:
        assert 1 == holder.begin(_TERMS)
        yield holder


@pytest.fixture
def address(holder: ClaimHolder) -> Iterator[Address]:
    """Where the holder answers."""
    with _served(holder) as address:
        yield address


@contextmanager
def _connected(address: Address, secret: bytes = _SECRET) -> Iterator[ClaimClient]:
    client = ClaimClient(address, secret)
    try:
        yield client
    finally:
        client.close()


def _rows(place: int) -> Candidates:
    rows: list[Row] = [(place, 1, 0, A, 3), (place, 2, 0, C, 3)]
    return candidates_of(rows)[0]


def _ask(client: ClaimClient, place: int, number: int = 1) -> list[int]:
    told: list[int] = client.ask(number, _rows(place)).classes.tolist()
    return told


def _unreachable(client: ClaimClient) -> str:
    with pytest.raises(RetryableError, match="CLAIMS_UNREACHABLE") as raised:
        _ask(client, 0)
    return raised.value.saw


def test_every_client_is_answered_by_the_one_holder(address: Address) -> None:
    """Each as often as it asks."""
    with _connected(address) as one, _connected(address) as other:
        for _ in range(3):
            assert [NEW, DUPLICATE] == _ask(one, 1)
            assert [DUPLICATE, DUPLICATE] == _ask(other, 0)


def test_an_error_reaches_the_client_which_may_ask_on(
    holder: ClaimHolder, address: Address
) -> None:
    """What is over is the round, not the connection."""
    with _connected(address) as client:
        assert 2 == holder.begin(_TERMS)
        with pytest.raises(FatalError, match="CLAIM_ROUND_OVER"):
            _ask(client, 1, number=1)
        assert [NEW, DUPLICATE] == _ask(client, 1, number=2)


def test_a_wrong_secret_is_refused_and_disturbs_nobody(address: Address) -> None:
    """Before anything that it says is read."""
    other = connection_secret(b"K" * 16)
    with _connected(address) as one, _connected(address, other) as stranger:
        assert [NEW, DUPLICATE] == _ask(one, 1)
        for _ in range(2):
            assert "AuthenticationError" in _unreachable(stranger)
        assert [NEW, DUPLICATE] == _ask(one, 1)


def test_a_server_that_does_not_know_the_secret_is_told_nothing(
    holder: ClaimHolder,
) -> None:
    """Both sides prove that they know it."""
    with (
        ClaimServer(holder, address=(_HOST, 0), secret=b"another") as server,
        _connected((_HOST, server.port)) as client,
    ):
        assert "AuthenticationError" in _unreachable(client)


def test_who_connects_and_says_nothing_keeps_nobody_waiting(address: Address) -> None:
    """Nor who says something else."""
    with (
        socket.create_connection(address) as silent,
        socket.create_connection(address) as babbling,
        _connected(address) as client,
    ):
        babbling.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        assert [NEW, DUPLICATE] == _ask(client, 1)
        assert silent.recv(1), "it was asked to prove itself"


def test_who_goes_away_in_the_middle_of_a_question_disturbs_nobody(
    address: Address,
) -> None:
    """As a worker that is killed does."""
    with (
        Client(address, authkey=_SECRET) as leaving,
        socket.socket(fileno=socket.dup(leaving.fileno())) as same,
    ):
        # Half of a message: its length says that there is more.
        same.sendall(b"\0\0\1\0 and no more")
    with _connected(address) as client:
        assert [NEW, DUPLICATE] == _ask(client, 1)


def test_a_slow_catalog_keeps_only_those_waiting_who_ask() -> None:
    """Who connects meanwhile is let in."""
    readable = threading.Event()

    def open_view(_terms: RoundTerms, _held: object) -> SegmentView:
        assert readable.wait(_PATIENCE_S)
        return view_of()

    with (
        ClaimHolder(open_view) as holder,
        _served(holder) as address,
        ThreadPoolExecutor(1) as tasks,
        _connected(address) as one,
        _connected(address) as other,
    ):
        number = holder.begin(_TERMS)
        waiting = tasks.submit(_ask, one, 1, number)
        with pytest.raises(FatalError, match="CLAIM_ROUND_OVER"):
            _ask(other, 1, number=number + 1)
        readable.set()
        assert [NEW, NEW] == waiting.result(_PATIENCE_S)


def test_a_client_that_gave_up_waiting_never_takes_the_late_answer_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asks its next question over another connection."""
    readable = threading.Event()

    def open_view(_terms: RoundTerms, _held: object) -> SegmentView:
        assert readable.wait(_PATIENCE_S)
        return view_of()

    with (
        ClaimHolder(open_view) as holder,
        _served(holder) as address,
        _connected(address) as client,
    ):
        number = holder.begin(_TERMS)
        with monkeypatch.context() as patch:
            patch.setattr(claim_server, "_ANSWER_TIMEOUT_S", 0.0)
            with pytest.raises(RetryableError, match="no answer for 0 s"):
                client.ask(number, _rows(1))
        readable.set()
        one = candidates_of([(1, 9, 0, (8, 8), 3)])[0]
        assert [NEW] == client.ask(number, one).classes.tolist()


def test_without_a_server_claims_are_unreachable_until_there_is_another(
    holder: ClaimHolder,
) -> None:
    """The address is the driver's of one claim; the next has its own."""
    with _served(holder) as address, _connected(address) as client:
        assert [NEW, DUPLICATE] == _ask(client, 1)
    with _connected(address) as client:
        for _ in range(2):
            assert f"{address[0]}:{address[1]}" in _unreachable(client)
    with _served(holder) as address, _connected(address) as client:
        assert [NEW, DUPLICATE] == _ask(client, 1)


def test_a_connection_ends_with_its_server(holder: ClaimHolder) -> None:
    """A task of an older claim is not left waiting for an answer."""
    with ClaimServer(holder, address=(_HOST, 0), secret=_SECRET) as server:
        client = ClaimClient((_HOST, server.port), _SECRET)
        assert [NEW, DUPLICATE] == _ask(client, 1)
    _unreachable(client)
    client.close()


def test_a_client_that_was_closed_connects_again(address: Address) -> None:
    """Closing lets go of the connection, twice if need be."""
    with _connected(address) as client:
        for _ in range(2):
            assert [NEW, DUPLICATE] == _ask(client, 1)
            client.close()
            client.close()


def test_a_server_ends_while_clients_are_connected_asking_and_silent(
    holder: ClaimHolder,
) -> None:
    """None of its threads outlives it by more than the answer at hand."""
    with ClaimServer(holder, address=(_HOST, 0), secret=_SECRET) as server:
        address = (_HOST, server.port)
        idle = ClaimClient(address, _SECRET)
        assert [NEW, DUPLICATE] == _ask(idle, 1)
        silent = socket.create_connection(address)
        # It was accepted: it is asked to prove itself.
        assert silent.recv(1)
        # Whether these are accepted before the server ends is chance.
        waiting = [socket.create_connection(address) for _ in range(20)]
    for thread in threading.enumerate():
        if thread.name == "claims":
            thread.join(_PATIENCE_S)
            assert not thread.is_alive()
    for connection in (silent, *waiting):
        connection.close()
    idle.close()


class _FailingListener(socket.socket):
    """A listener that cannot accept, three times, as without a file to spare."""

    failures = 3

    def accept(self) -> tuple[socket.socket, Address]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


def test_who_could_not_be_accepted_is_when_there_are_files_again(
    holder: ClaimHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is told once, however often it has failed."""
    told: list[Exception] = []

    def create_server(address: Address, *, backlog: int) -> socket.socket:
        listener = _FailingListener()
        listener.bind(address)
        listener.listen(backlog)
        return listener

    monkeypatch.setattr(socket, "create_server", create_server)
    with _served(holder, told.append) as address, _connected(address) as client:
        assert [NEW, DUPLICATE] == _ask(client, 1)
    assert ["too many open files"] == [str(error.args[1]) for error in told]


def test_without_a_thread_to_spare_only_who_connects_then_is_sent_away(
    holder: ClaimHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks again over another connection, and each episode is told."""
    told: list[Exception] = []
    start = threading.Thread.start
    no_thread = iter([True, False, True, False])

    def start_or_not(thread: threading.Thread) -> None:
        if next(no_thread):
            raise RuntimeError("can't start new thread")
        start(thread)

    with _served(holder, told.append) as address:
        monkeypatch.setattr(threading.Thread, "start", start_or_not)
        for _ in range(2):
            with _connected(address) as client:
                _unreachable(client)
                assert [NEW, DUPLICATE] == _ask(client, 1)
    assert 2 == len(told)


def test_who_never_proves_itself_is_sent_away(
    holder: ClaimHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread and its connection are not held for good; who has proved stays."""
    monkeypatch.setattr(claim_server, "_PROOF_TIMEOUT_S", 0.5)
    with _served(holder) as address, _connected(address) as client:
        assert [NEW, DUPLICATE] == _ask(client, 1)
        with socket.create_connection(address, timeout=_PATIENCE_S) as silent:
            while silent.recv(4096):
                pass
        # By now the client has been silent for as long.
        connection = client._connection
        assert [NEW, DUPLICATE] == _ask(client, 1)
        assert connection is client._connection


def test_of_those_who_prove_nothing_the_oldest_make_room(
    holder: ClaimHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So they hold so many threads and files; who has proved itself is none of them."""
    monkeypatch.setattr(claim_server, "_PROVING_MAX", 3)
    before = threading.active_count()
    with (
        _served(holder) as address,
        _connected(address) as client,
        ExitStack() as open_,
    ):
        assert [NEW, DUPLICATE] == _ask(client, 1)
        connection = client._connection
        # Sooner than the proof takes too long.
        silent = [
            open_.enter_context(socket.create_connection(address, timeout=10))
            for _ in range(20)
        ]
        for one in silent[:-3]:
            while one.recv(4096):
                pass
        deadline = time.monotonic() + _PATIENCE_S
        # The server's, the client's, and those of the last three.
        while threading.active_count() > before + 5:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with _connected(address) as late:
            assert [DUPLICATE, DUPLICATE] == _ask(late, 2)
        assert [NEW, DUPLICATE] == _ask(client, 1)
        assert connection is client._connection


def test_a_server_that_does_not_accept_keeps_no_task_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To connect succeeds without it, as long as its backlog has room."""
    monkeypatch.setattr(claim_server, "_PROOF_TIMEOUT_S", 0.05)
    with (
        socket.create_server((_HOST, 0)) as listener,
        _connected(listener.getsockname()) as client,
    ):
        _unreachable(client)


def test_both_sides_notice_a_peer_whose_host_is_gone() -> None:
    """Without it a task would wait for the rest of an answer, and a thread for it."""
    with socket.socket() as connected:
        claim_server._make_ready(connected)
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert 15 == connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)


@pytest.mark.slow
def test_a_big_question_arrives_whole(holder: ClaimHolder, address: Address) -> None:
    """Two million rows: no limit of a message or a buffer stands in the way."""
    rows = 2_000_000
    rng = np.random.default_rng(7)
    words = rng.integers(0, 2**64, (2, rows), dtype=np.uint64)
    asked = Candidates(
        place=np.zeros(rows, dtype=np.int64),
        offset=np.arange(rows),
        bucket=rng.integers(0, 50, rows) * 3600,
        hi=words[0],
        lo=words[1],
        payload_hashes=words[1] | np.uint64(1),
    )
    asked = asked.take(asked.order())
    with _connected(address) as client:
        told = client.ask(1, asked)
        assert told.survives.all()
        assert (told.buckets == asked.bucket).all()
        # The server has understood every row: all are held, by their positions.
        again = holder.ask(1, asked)
        assert again.survives.all()
        assert holder.review(rows, in_order=True) is None


def test_what_is_proved_to_be_known_is_not_the_key() -> None:
    """Who listens on the wire learns nothing that IDs could be guessed by."""
    keys = [b"k" * 16, b"K" * 16]
    secrets = {connection_secret(key) for key in keys}
    assert len(secrets) == len(keys)
    assert not secrets & set(keys)
    assert connection_secret(keys[0]) == connection_secret(bytes(keys[0]))
