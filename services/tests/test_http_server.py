"""What a client may make the server keep, how long it may take, and by which name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from starlette.types import Message, Receive, Send

from tallyweir.services.process import http_server
from tallyweir.services.process.http_server import (
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    LEFT_BYTES_MAX,
    QUEUED_MAX,
    DrainingServer,
    listen,
)

#: More than every buffer between the two ends holds.
FLOOD_BYTES = 60_000_000
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = (
    b"POST /slow HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
)
LAST = b"GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@dataclass
class World:
    """A server, and what its application was asked."""

    port: int
    asked: list[Message] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer at once, or, under ``/slow``, when the body is complete."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        self.asked.append(scope)
        if scope["path"] == "/slow":
            body, more = b"", True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                body += message["body"]
                more = message["more_body"]
            self.bodies.append(body)
        length = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": b"ok"})

    def exchange(self, *parts: bytes) -> bytes:
        """Send what the server takes; return what it answers until it closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as wire:
            try:
                for part in parts:
                    wire.sendall(part)
            except (BrokenPipeError, ConnectionResetError):
                return b"cut off"
            answer = b""
            try:
                while part := wire.recv(65_536):
                    answer += part
            except ConnectionResetError:
                return answer or b"cut off"
            return answer


def served(work: Callable[[World], None], *names: str) -> World:
    """Let a client work with a server."""

    async def serve() -> World:
        with listen("127.0.0.1", 0) as listener:
            world = World(listener.getsockname()[1])
            server = DrainingServer(world, names=names, drain_timeout_s=1)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                await asyncio.to_thread(work, world)
            finally:
                server.should_exit = True
                await serving
            return world

    return asyncio.run(serve())


def flood(begin: bytes, part: bytes) -> list[bytes]:
    """A begin, and the same for ever after."""
    block = part * (1_000_000 // len(part) + 1)
    return [begin, *[block] * (FLOOD_BYTES // len(block))]


@pytest.mark.parametrize(
    ("begin", "part"),
    [
        (GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-T: 123456789\r\n"),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"x"),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"y"),
        (CHUNKED + b"0\r\n", b"X-T: 123456789\r\n"),
        (CHUNKED + b"1;", b"x"),
        (CHUNKED, b"1;x=" + b"y" * 100 + b"\r\nz\r\n"),
        (GET, b"X-H: 123456789\r\n"),
        (GET, b"x"),
        (b"GET /", b"x"),
        (GET + b"X: ", b"y"),
        (b"", b"\r\n"),
        (GET + b"Content-Length: 99999999999\r\n\r\n", b"x"),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=[
        "trailers",
        "a trailer's name",
        "a trailer's value",
        "trailers of a body that is read",
        "a chunk's extension",
        "many extensions",
        "headers",
        "a header's name",
        "a path",
        "a header's value",
        "empty lines",
        "a body that nobody reads",
        "chunks that nobody reads",
    ],
)
def test_whatever_has_no_end_is_cut_off(begin: bytes, part: bytes) -> None:
    """The server keeps some kilobytes of it, and ends the connection."""
    answers: list[bytes] = []
    served(lambda world: answers.append(world.exchange(*flood(begin, part))))
    assert answers == [b"cut off"]


@pytest.mark.parametrize("first", [b"", GET + b"\r\n"], ids=["first", "second"])
def test_a_head_has_32_kib_and_the_next_byte_is_refused(first: bytes) -> None:
    """In whatever pieces it comes, and whichever request it is."""

    def ask(world: World) -> None:
        answers.append(world.exchange(first + head(HEAD_BYTES_MAX)))
        answers.append(world.exchange(first + head(3 * HEAD_BYTES_MAX)))
        whole = head(HEAD_BYTES_MAX + (8_192 if first else 1))
        answers.append(
            world.exchange(
                first, *(whole[i : i + 99] for i in range(0, len(whole), 99))
            )
        )

    def head(size: int) -> bytes:
        begin, end = GET + b"Connection: close\r\nX: ", b"\r\n\r\n"
        return begin + b"x" * (size - len(begin) - len(end)) + end

    answers: list[bytes] = []
    served(ask)
    before = b"HTTP/1.1 200 " if first else b""
    assert answers[0].count(b"HTTP/1.1 200 ") == (2 if first else 1)
    for refused in answers[1:]:
        assert refused == b"cut off" or (
            refused.startswith(before or b"HTTP/1.1 431 ")
            and refused.count(b"HTTP/1.1 200 ") == (1 if first else 0)
        )


def test_too_many_headers_are_refused() -> None:
    """Each costs more than its bytes."""
    answers: list[bytes] = []

    def ask(world: World) -> None:
        for count in (HEADERS_MAX - 2, HEADERS_MAX - 1):
            lines = b"a:b\r\n" * count
            answers.append(
                world.exchange(GET + b"Connection: close\r\n" + lines + b"\r\n")
            )

    world = served(ask)
    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 200", b"HTTP/1.1 431"]
    assert len(world.asked) == 1


def test_small_chunks_are_no_waste_and_trailers_reach_no_application() -> None:
    """A body in chunks of one byte, in packets as they like, then a trailer."""
    body = bytes(range(256)) * 100
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    end = b"0\r\nAuthorization: Bearer stranger\r\n\r\n"
    whole = CHUNKED + chunks + end + LAST
    answers: list[bytes] = []

    def ask(world: World) -> None:
        answers.append(world.exchange(whole))
        answers.append(
            world.exchange(*(whole[i : i + 7] for i in range(0, len(whole), 7)))
        )

    world = served(ask)
    assert [answer.count(b"HTTP/1.1 200 ") for answer in answers] == [2, 2]
    assert world.bodies == [body, body]
    assert all(len(scope["headers"]) == 2 for scope in world.asked)


def test_a_chain_of_requests_is_answered_as_far_as_it_may_go() -> None:
    """What comes after is left out, and nothing is answered with another's answer."""
    chain = GET + b"\r\n"
    answers: list[bytes] = []

    def ask(world: World) -> None:
        answers.append(world.exchange(chain * 20_000))

    world = served(ask)
    assert answers[0].count(b"HTTP/1.1 200 ") == len(world.asked) == QUEUED_MAX + 1
    assert b" 400 " not in answers[0]


def test_a_refusal_is_never_taken_for_the_answer_before_it() -> None:
    """The request before it was accepted; its answer says so."""
    answers: list[bytes] = []
    post = CHUNKED + b"2\r\nhi\r\n0\r\n\r\n"
    served(lambda world: answers.append(world.exchange(post + b"NONSENSE\r\n\r\n")))
    assert answers[0].startswith(b"HTTP/1.1 200 ")
    assert answers[0].endswith(b"ok")


def test_a_small_rest_of_an_answered_request_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection stays, unless the rest is not there in time."""
    head = GET + b"Content-Length: %d\r\n\r\n"
    answers: list[bytes] = []

    def ask(world: World) -> None:
        size = LEFT_BYTES_MAX // 2
        answers.append(world.exchange(head % size, b"x" * size + LAST))
        answers.append(world.exchange(head % size))

    monkeypatch.setattr(http_server, "HEAD_TIMEOUT_S", 1.0)
    served(ask)
    assert [answer.count(b"HTTP/1.1 200 ") for answer in answers] == [2, 1]


def test_only_its_own_names_are_answered() -> None:
    """A page that lets its name lead here reads nothing."""
    answers: dict[bytes, bytes] = {}
    own = [b"Host: localhost:8090", b"Host: monitor.example.com"]
    foreign = [b"Host: rebound.example", b"Host: rebound.example:8090", b"Host: "]
    unclear = [b"X: y", b"Host: localhost\r\nHost: localhost"]

    def ask(world: World) -> None:
        for host in (*own, *foreign, *unclear):
            lines = b"\r\n" + host + b"\r\nConnection: close\r\n\r\n"
            answers[host] = world.exchange(b"GET / HTTP/1.1" + lines)[9:12]

    world = served(ask, "monitor.example.com")
    assert answers == {
        **dict.fromkeys(own, b"200"),
        **dict.fromkeys(foreign, b"421"),
        **dict.fromkeys(unclear, b"400"),
    }
    assert len(world.asked) == len(own)


def test_a_probe_that_names_no_host_is_answered() -> None:
    """HTTP/1.0 needs none, and no browser speaks it."""
    answers: list[bytes] = []
    served(lambda world: answers.append(world.exchange(b"GET /livez HTTP/1.0\r\n\r\n")))
    assert answers[0].startswith(b"HTTP/1.1 200 ")
