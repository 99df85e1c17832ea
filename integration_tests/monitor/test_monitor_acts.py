"""Who may see payloads and act through the monitor, and that acts are noted by name."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from integration_tests.harness.monitor_service import running_monitor
from integration_tests.ledger_scenario import PIPELINE, LedgerScenario
from tallyweir.services.monitor.guard import FAILURES_MAX
from tallyweir.services.monitor.guarded_paths import ACT_BYTES_MAX
from tallyweir.services.monitor.tokens import PAGE_TOKENS, Role, make_token
from tallyweir.services.process.hashed_secrets import add_secret

_ACT = {"x-tallyweir-act": "1"}
_PAUSE = {"arguments": {"reason": "airports are loaded"}, "dry_run": False}


@dataclass(frozen=True, kw_only=True)
class _Asker:
    """Asks a monitor with a token of each role."""

    client: httpx.Client
    viewer: str
    operator: str

    def post(
        self, act: str, body: dict[str, Any], token: str | None, **headers: str
    ) -> httpx.Response:
        """Ask for an act as the page does."""
        bearer = {"authorization": f"Bearer {token}"} if token else {}
        return self.client.post(
            f"/api/pipelines/{PIPELINE}/acts/{act}",
            json=body,
            headers={**_ACT, **bearer, **headers},
        )

    def letter(self, token: str | None) -> httpx.Response:
        """Ask for what a dead letter holds."""
        return self.client.get(
            f"/api/pipelines/{PIPELINE}/letters/orders/0/11",
            headers={"authorization": f"Bearer {token}"} if token else {},
        )


@pytest.fixture
def asker(
    home_dsn: str, kafka_bootstrap: str, scenario: LedgerScenario, tmp_path: Path
) -> Iterator[_Asker]:
    """A monitor with two tokens."""
    assert scenario.sequence == 3
    file = tmp_path / "tokens.json"
    texts = []
    for name, role in (("bob", Role.VIEWER), ("ada", Role.OPERATOR)):
        token, text = make_token(name=name, role=role, not_after=None)
        add_secret(file, PAGE_TOKENS, token)
        texts.append(text)
    with running_monitor(home_dsn, kafka_bootstrap, "--tokens", str(file)) as client:
        yield _Asker(client=client, viewer=texts[0], operator=texts[1])


def _pauses(home_dsn: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(home_dsn) as home:
        return home.execute(
            "SELECT pause.reason, paused_by, done_by, resumed_by "
            "FROM tallyweir.pause JOIN tallyweir.act USING (pipeline, epoch)"
        ).fetchall()


def test_what_a_record_holds_is_for_who_has_a_token(asker: _Asker) -> None:
    """In hex, and decoded as far as it goes."""
    assert asker.letter(None).status_code == 401
    answer = asker.letter(asker.viewer)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["payload_hex"] == "dead"
    assert found["decoded"]["problem"].startswith("BAD_MAGIC")
    assert found["headers"] is None


def test_samples_are_for_who_has_a_token(
    asker: _Asker, scenario: LedgerScenario
) -> None:
    """The graph tells anybody whether there are some."""
    scenario.write_samples()
    path = f"/api/pipelines/{PIPELINE}/samples"
    assert asker.client.get(path).status_code == 401
    bearer = {"authorization": f"Bearer {asker.viewer}"}
    found = asker.client.get(path, headers=bearer).json()
    assert [one["step"] for one in found["steps"]] == ["decode", "stage"]
    assert found["steps"][0]["rows"][0]["fields"] == [["origin", "<JFK>"]]
    graph = asker.client.get(f"/api/pipelines/{PIPELINE}/graph")
    assert graph.json()["samples"] == 2
    assert "<JFK>" not in graph.text


def test_an_act_is_for_an_operator_and_noted_by_his_name(
    asker: _Asker, home_dsn: str
) -> None:
    """Beside the login that the monitor acts under; a dry run changes nothing."""
    assert asker.post("pause", _PAUSE, None).status_code == 401
    refused = asker.post("pause", _PAUSE, asker.viewer)
    assert (refused.status_code, refused.json()["code"]) == (403, "ROLE_MISSING")
    dry = asker.post("pause", {**_PAUSE, "dry_run": True}, asker.operator)
    assert "can be paused" in " ".join(dry.json()["told"])
    assert _pauses(home_dsn) == []
    done = asker.post("pause", _PAUSE, asker.operator)
    assert done.status_code == 200, done.text
    again = asker.post("pause", _PAUSE, asker.operator)
    assert (again.status_code, again.json()["code"]) == (409, "PAUSED_ALREADY")
    resumed = asker.post("resume", {"arguments": {}, "dry_run": False}, asker.operator)
    assert resumed.status_code == 200, resumed.text
    ((reason, *names),) = _pauses(home_dsn)
    assert reason == "airports are loaded"
    assert all(name.startswith("ada through ") for name in names)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://elsewhere.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"x-tallyweir-act": "0"},
    ],
)
def test_an_act_from_another_site_is_refused(
    asker: _Asker, home_dsn: str, headers: dict[str, str]
) -> None:
    """Even with the token of an operator."""
    answer = asker.post("pause", _PAUSE, asker.operator, **headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "ORIGIN_FOREIGN")
    assert _pauses(home_dsn) == []


def test_who_guesses_has_to_wait_and_locks_nobody_out(asker: _Asker) -> None:
    """A right token passes from the same address; a request without one is no guess."""
    for _ in range(2 * FAILURES_MAX):
        assert asker.post("pause", _PAUSE, None).status_code == 401
        assert asker.client.get(f"/api/pipelines/{PIPELINE}/samples").status_code == 401
    for _ in range(FAILURES_MAX):
        assert asker.letter("twm_0").status_code == 401
    answer = asker.letter("twm_0")
    assert (answer.status_code, answer.json()["code"]) == (429, "TOO_MANY_FAILURES")
    assert int(answer.headers["retry-after"]) > 0
    assert asker.letter(asker.viewer).status_code == 200


def test_what_is_asked_for_wrongly_is_refused(asker: _Asker) -> None:
    """An act that is not there, a record that is none, a body of other members."""
    token = asker.operator
    answer = asker.post("drop", _PAUSE, token)
    assert (answer.status_code, answer.json()["code"]) == (404, "ACT_UNKNOWN")
    wrong = {"arguments": {"reason": "x", "record": "here"}, "dry_run": True}
    answer = asker.post("redrive", wrong, token)
    assert (answer.status_code, answer.json()["code"]) == (409, "RECORD_MALFORMED")
    wrong = {"arguments": {"reason": "x", "recrod": "views/0/1"}, "dry_run": True}
    answer = asker.post("redrive", wrong, token)
    assert (answer.status_code, answer.json()["code"]) == (409, "ACT_ARGUMENT")
    assert "recrod" in answer.json()["saw"]
    headers = {**_ACT, "authorization": f"Bearer {token}"}
    path = f"/api/pipelines/{PIPELINE}/acts/pause?dry_run=true"
    answer = asker.client.post(path, json=_PAUSE, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "ACT_ARGUMENT")
    for version, code in (
        ("0", "VERSION_UNKNOWN"),
        ("none", "ACT_ARGUMENT"),
        ("-1", "ACT_ARGUMENT"),
    ):
        wrong = {"arguments": {"reason": "x", "version": version}, "dry_run": True}
        answer = asker.post("rollback", wrong, token)
        assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert asker.post("pause", {"arguments": {}}, token).status_code == 422


def test_a_stranger_is_answered_before_the_body_of_an_act_is_there(
    asker: _Asker,
) -> None:
    """What anybody may send is not read, let alone held."""
    url = asker.client.base_url
    head = (
        f"POST /api/pipelines/{PIPELINE}/acts/pause HTTP/1.1\r\nHost: {url.host}\r\n"
        "x-tallyweir-act: 1\r\ncontent-type: application/json\r\n"
        "transfer-encoding: chunked\r\n\r\n"
    )
    with socket.create_connection((url.host, url.port or 80), timeout=10) as stranger:
        # A chunk of a body that does not end.
        stranger.sendall(head.encode() + b"1000\r\n" + b" " * 0x1000 + b"\r\n")
        assert stranger.recv(12) == b"HTTP/1.1 401"


def test_the_body_of_an_act_is_small(asker: _Asker, home_dsn: str) -> None:
    """Also of who has a token; the limit is inclusive."""
    path = f"/api/pipelines/{PIPELINE}/acts/pause"
    headers = {**_ACT, "authorization": f"Bearer {asker.operator}"}
    body = json.dumps(_PAUSE).encode().ljust(ACT_BYTES_MAX)
    answer = asker.client.post(path, content=body + b" ", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "BODY_TOO_LARGE")
    assert _pauses(home_dsn) == []
    assert asker.client.post(path, content=body, headers=headers).status_code == 200


def test_without_a_tokens_file_nobody_acts(
    home_dsn: str, kafka_bootstrap: str, scenario: LedgerScenario
) -> None:
    """The page does not even ask for a token."""
    assert scenario.sequence == 3
    with running_monitor(home_dsn, kafka_bootstrap) as client:
        assert client.get("/api/access").json() == {"name": None, "has_tokens": False}
        answer = client.post(
            f"/api/pipelines/{PIPELINE}/acts/pause", json=_PAUSE, headers=_ACT
        )
        assert answer.status_code == 401
