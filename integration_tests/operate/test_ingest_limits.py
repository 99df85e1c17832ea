"""Requests that no client library makes: each is refused or ignored, none does harm."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from integration_tests.harness.ingest_service import (
    IngestService,
    page_view,
    read_stored,
)
from tallyweir.services.ingest.request import BODY_BYTES_MAX

BODY = json.dumps(page_view("shop:raw")).encode()


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, kafka_bootstrap: str
) -> Iterator[IngestService]:
    """A service for all; none of the tests may hurt it."""
    started = IngestService(tmp_path_factory.mktemp("ingest"), kafka_bootstrap)
    started.start()
    yield started
    # An assertion about every test here: whatever came, no request met a defect.
    assert started.logged("request failed") is None
    assert started.stop() == 0


def head(service: IngestService, *lines: str, key: str | None = None) -> bytes:
    """A request's head with a good key, and what is given."""
    given = [
        f"POST /v1/events/{service.topic} HTTP/1.1",
        "Host: ingest",
        f"Authorization: Bearer {key or service.key}",
        "Content-Type: application/json",
        *lines,
    ]
    return "\r\n".join([*given, "", ""]).encode()


def exchange(service: IngestService, *parts: bytes, ends: bool = True) -> bytes:
    """Send bytes, say that no more come, and read until the other side closes."""
    with socket.create_connection(service.address, timeout=30) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            if ends:
                connection.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return read_rest(connection)


def read_rest(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    answer = b""
    try:
        while part := connection.recv(65_536):
            answer += part
    except ConnectionResetError:
        pass
    return answer


def chunk(part: bytes) -> bytes:
    """A part of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(part), part)


def test_a_chunked_body_is_counted_as_it_comes(service: IngestService) -> None:
    """It declares no length, and is cut off at the limit."""
    begin = head(service, "Transfer-Encoding: chunked")
    part = chunk(b" " * 65_536)
    answer = exchange(
        service, begin, *[part] * (BODY_BYTES_MAX // 65_536 + 2), ends=False
    )
    assert answer.startswith(b"HTTP/1.1 413 ")
    small = exchange(
        service,
        head(service, "Transfer-Encoding: chunked", "Connection: close"),
        *(chunk(BODY[at : at + 7]) for at in range(0, len(BODY), 7)),
        b"0\r\n\r\n",
        ends=False,
    )
    assert small.startswith(b"HTTP/1.1 202 ")


def test_a_declared_body_that_is_too_large_is_not_waited_for(
    service: IngestService,
) -> None:
    """The answer comes at once, and the connection ends."""
    answer = exchange(service, head(service, "Content-Length: 1048577"), ends=False)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer


def test_who_has_no_key_is_not_told_to_go_on(service: IngestService) -> None:
    """``100 Continue`` is for those whose body is wanted."""
    expect = ("Expect: 100-continue", f"Content-Length: {len(BODY)}")
    refused = exchange(
        service, head(service, *expect, "Connection: close", key="tw_x"), ends=False
    )
    assert refused.startswith(b"HTTP/1.1 401 ")
    assert b"100 Continue" not in refused
    with socket.create_connection(service.address, timeout=30) as connection:
        connection.sendall(head(service, *expect, "Connection: close"))
        assert connection.recv(1_000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(BODY)
        assert read_rest(connection).startswith(b"HTTP/1.1 202 ")


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: -1",),
        ("Content-Length: five",),
        ("Content-Length: " + "9" * 40,),
        ("Transfer-Encoding: gzip, chunked", "Content-Encoding: gzip"),
        ("Transfer-Encoding: nonsense",),
        ("Bad Header: x",),
        ("X: a\0b",),
    ],
    ids=lambda lines: lines[0][:40],
)
def test_a_head_that_two_servers_could_read_differently_is_refused(
    service: IngestService, lines: tuple[str, ...]
) -> None:
    """Before anything is taken, with an answer below 500 or none at all."""
    before = read_stored(service.bootstrap, service.topic)
    answer = exchange(service, head(service, *lines) + b"[]\r\n0\r\n\r\n")
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer[:60]
    assert read_stored(service.bootstrap, service.topic) == before


@pytest.mark.parametrize(
    "lines",
    [
        ("X: " + "x" * 1_000_000,),
        tuple(f"X-{number}: {number}" for number in range(50_000)),
    ],
    ids=["one header", "many headers"],
)
def test_a_head_that_is_too_large_reaches_nobody(
    service: IngestService, lines: tuple[str, ...]
) -> None:
    """The connection ends long before the head does."""
    whole = head(service, *lines, f"Content-Length: {len(BODY)}") + BODY
    answer = exchange(service, whole, ends=False)
    assert answer == b"" or b"Headers too large" in answer, answer[:60]


def test_half_a_request_is_no_event(service: IngestService) -> None:
    """Wherever the client leaves, the event is not taken, or taken once."""
    whole = head(service, f"Content-Length: {len(BODY)}") + BODY
    before = read_stored(service.bootstrap, service.topic)
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda end: exchange(service, whole[:end]), range(0, len(whole), 5)
            )
        )
    assert read_stored(service.bootstrap, service.topic) == before


def test_requests_in_a_row_are_answered_in_their_order(service: IngestService) -> None:
    """A refused one in between does not shift the others."""
    good = head(service, f"Content-Length: {len(BODY)}") + BODY
    bad = head(service, "Content-Length: 2") + b"[]"
    last = head(service, f"Content-Length: {len(BODY)}", "Connection: close") + BODY
    answer = exchange(service, good + bad + last, ends=False)
    lines = [part.split(b"\r\n")[0] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert [line[:3] for line in lines] == [b"202", b"400", b"202"]


@pytest.mark.parametrize(
    "line",
    [
        "GET / HTTP/9.9",
        "POST /v1/events/%00 HTTP/1.1",
        "POST /v1/events/%ff%fe HTTP/1.1",
        "POST /v1/events/../../etc HTTP/1.1",
        "POST http://other/v1/events/x HTTP/1.1",
        "CONNECT other:443 HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "NONSENSE",
        "PRI * HTTP/2.0",
    ],
)
def test_strange_request_lines_do_no_harm(service: IngestService, line: str) -> None:
    """Refused or dropped; never 500."""
    rest = (
        f"Host: x\r\nAuthorization: Bearer {service.key}\r\nConnection: close\r\n\r\n"
    )
    answer = exchange(service, f"{line}\r\n{rest}".encode())
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer[:60]


def test_the_service_is_as_well_as_before(service: IngestService) -> None:
    """After whatever the other tests did, in whatever order."""
    assert service.post(page_view("shop:well")).status_code == 202
    assert service.get("/livez").status_code == 200
