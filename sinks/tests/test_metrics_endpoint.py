"""The endpoint: what it serves, where, and what it refuses to start with."""

from __future__ import annotations

import contextlib
import http.client
import socket

import pytest
from prometheus_client import CollectorRegistry, Counter

from tallyweir.sinks import metrics_endpoint
from tallyweir.sinks.metrics_endpoint import Check, Heartbeat, serve_metrics
from tallyweir.sinks.protocol.errors import ConfigurationError

_ANY_PORT = {"TALLYWEIR_METRICS_PORT": "0"}


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("tallyweir_things", "Things.", ["kind"], registry=registry).labels(
        "a"
    ).inc()
    return registry


def _get(
    path: str,
    *,
    ready: dict[str, Check] | None = None,
    accept: str = "*/*",
) -> tuple[int, str, str]:
    """Return status, content type and body of one answer."""
    with serve_metrics(
        _registry(), live={}, ready=ready or {}, environment=_ANY_PORT
    ) as address:
        assert address is not None
        connection = http.client.HTTPConnection(*address, timeout=10)
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
    return answer.status, answer.headers["Content-Type"], body


def test_metrics_come_as_text_with_what_runs_here() -> None:
    """Prometheus finds the process's own metrics and its build."""
    status, content_type, body = _get("/metrics")
    assert (200, "text/plain") == (status, content_type.split(";")[0])
    assert 'tallyweir_things_total{kind="a"} 1.0' in body
    assert 'tallyweir_build_info{python="3.' in body


def test_openmetrics_come_when_asked_for() -> None:
    """A scraper that prefers them says so."""
    _, content_type, body = _get("/metrics", accept="application/openmetrics-text")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith("# EOF\n")


def test_ready_is_200_when_all_checks_hold_and_503_when_one_fails() -> None:
    """Machines read the status, people the lines."""
    good: dict[str, Check] = {"a": lambda: None, "b": lambda: None}
    assert (200, "[+]a ok\n[+]b ok\nok\n") == _get("/readyz", ready=good)[::2]
    bad = good | {"b": lambda: "gone"}
    found = _get("/readyz?verbose", ready=bad)[::2]
    assert (503, "[+]a ok\n[-]b failed: gone\nfailed\n") == found


def test_a_process_that_is_not_ready_still_lives() -> None:
    """Who is not ready is sent no work, and is not started again."""
    assert 200 == _get("/livez", ready={"a": lambda: "gone"})[0]


def test_other_paths_are_not_found() -> None:
    """There is nothing else to see."""
    assert 404 == _get("/")[0]


@pytest.mark.parametrize("environment", [{}, {"TALLYWEIR_METRICS_PORT": ""}])
def test_nothing_listens_unless_asked_for(environment: dict[str, str]) -> None:
    """No port, no endpoint."""
    with serve_metrics(
        _registry(), live={}, ready={}, environment=environment
    ) as address:
        assert address is None


def test_only_this_machine_is_listened_to_unless_asked_otherwise() -> None:
    """Whoever wants more says where."""
    with serve_metrics(
        _registry(), live={}, ready={}, environment=_ANY_PORT
    ) as address:
        assert "127.0.0.1" == (address or ("",))[0]
    everywhere = {**_ANY_PORT, "TALLYWEIR_METRICS_HOST": "0.0.0.0"}
    with serve_metrics(
        _registry(), live={}, ready={}, environment=everywhere
    ) as address:
        assert "0.0.0.0" == (address or ("",))[0]


@pytest.mark.parametrize("text", ["http", "-1", "65536", "80 "])
def test_what_is_no_port_is_refused(text: str) -> None:
    """A mistyped port must not mean no metrics."""
    with (
        pytest.raises(ConfigurationError, match="METRICS_PORT_INVALID"),
        serve_metrics(
            _registry(),
            live={},
            ready={},
            environment={"TALLYWEIR_METRICS_PORT": text},
        ),
    ):
        pass


def test_a_port_that_is_taken_is_refused_and_one_that_was_served_is_free() -> None:
    """Two processes with one port is a mistake that must be told."""
    with serve_metrics(
        _registry(), live={}, ready={}, environment=_ANY_PORT
    ) as address:
        assert address is not None
        taken = {"TALLYWEIR_METRICS_PORT": str(address[1])}
        with (
            pytest.raises(ConfigurationError, match="METRICS_PORT_TAKEN"),
            serve_metrics(_registry(), live={}, ready={}, environment=taken),
        ):
            pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=10)


def test_a_heartbeat_fails_before_the_first_beat_and_after_a_long_silence() -> None:
    """What has never happened is as bad as what stopped happening."""
    now = 100.0
    heartbeat = Heartbeat(silence_max_s=60, clock=lambda: now)
    assert "not yet" == heartbeat.check()
    heartbeat.beat()
    now += 60
    assert heartbeat.check() is None
    now += 1
    assert "not for 61 s" == heartbeat.check()


def _exchange(
    *parts: bytes, environment: dict[str, str] | None = None, held: int = 0
) -> bytes:
    """Send what the endpoint takes, while others hold it; return what it answers."""
    with (
        contextlib.ExitStack() as stack,
        serve_metrics(
            _registry(),
            live={},
            ready={},
            environment=_ANY_PORT | (environment or {}),
        ) as address,
    ):
        assert address is not None
        for _ in range(held):
            holder = stack.enter_context(socket.create_connection(address))
            holder.sendall(b"GET /livez HT")
        with socket.create_connection(address, timeout=20) as client:
            answer = b""
            try:
                for part in parts:
                    client.sendall(part)
                while part := client.recv(65_536):
                    answer += part
            except (BrokenPipeError, ConnectionResetError):
                pass
            return answer


_FLOOD = b"X: " + b"y" * 60_000_000


@pytest.mark.parametrize(
    "head",
    [_FLOOD, b"GET /livez HTTP/1.1\r\n" + _FLOOD, b"GET /" + _FLOOD, b"X:y\n" * 50_000],
    ids=["anything", "a header", "a path", "many headers"],
)
def test_a_head_has_32_kib(head: bytes) -> None:
    """What is larger is not read, and gets no answer."""
    assert _exchange(head) == b""


def test_a_head_in_small_parts_is_answered() -> None:
    """However it was cut."""
    whole = b"GET /livez HTTP/1.0\r\nX: y\r\n\r\n"
    assert b" 200 OK" in _exchange(*(whole[i : i + 1] for i in range(len(whole))))


def test_a_head_that_takes_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time is that of the whole head, however often a byte comes."""
    monkeypatch.setattr(metrics_endpoint, "_CLIENT_TIMEOUT_S", 0.2)
    assert _exchange(b"GET /livez HT") == b""


def test_one_client_too_many_is_sent_away() -> None:
    """Each has a thread of its own."""
    get = b"GET /livez HTTP/1.0\r\n\r\n"
    most = metrics_endpoint._CLIENTS_MAX
    assert b" 200 OK" in _exchange(get, held=most - 1)
    assert _exchange(get, held=most) == b""


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"Host: localhost:1", 200),
        (b"Host: driver:8081", 200),
        (b"Host: rebound.example", 421),
        (b"Host: driver\r\nHost: rebound.example", 421),
        (b"X: y", 421),
    ],
)
def test_only_its_own_names_are_answered(host: bytes, status: int) -> None:
    """Another site's name that leads here shows nothing."""
    answer = _exchange(
        b"GET /metrics HTTP/1.1\r\n" + host + b"\r\n\r\n",
        environment={"TALLYWEIR_PUBLIC_NAMES": "driver other"},
    )
    assert answer.startswith(b"HTTP/1.0 %d " % status)
    assert (b"tallyweir_things" in answer) == (status == 200)
