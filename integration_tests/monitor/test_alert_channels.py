"""Channels of alerts against real servers."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from integration_tests.harness.alert_receivers import (
    HttpReceiver,
    http_receiver,
    mail_receiver,
)
from integration_tests.harness.alerted_home import (
    alerted_home,
    make_service,
    write_rules,
)
from integration_tests.harness.alertmanager_program import (
    active_alerts,
    running_alertmanager,
)
from integration_tests.harness.relayed_home import RelayedHome, wait_for
from tallyweir.services.alerts import channels
from tallyweir.sinks.protocol.errors import RetryableError


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    """Takes what webhooks send."""
    with http_receiver() as opened:
        yield opened


@pytest.fixture
def home(home_dsn: str, kafka_bootstrap: str) -> RelayedHome:
    """A pipeline whose driver is gone, and its topic, which is empty."""
    return alerted_home(home_dsn, kafka_bootstrap)


def test_mail_is_sent_encrypted_after_a_login(
    home: RelayedHome,
    receiver: HttpReceiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server's certificate must be good; else there is no mail and no password."""
    with mail_receiver(tmp_path) as server:
        section = (
            f"  mail: {{kind: email, server: localhost, port: {server.port}, "
            "from: tallyweir@example.org, to: [a@example.org, b@example.org], "
            "user: tally, password_from: HOOK_SECRET}\n"
        )
        rules = "  gone: {when: driver_gone, severity: page, channels: [mail]}\n"
        service = make_service(
            home, write_rules(tmp_path, receiver.url, rules, section)
        )
        assert ["ALERT_CHANNEL_UNREACHABLE"] == service.run_round()
        assert ([], []) == (server.logins, server.mail)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
        home.execute("UPDATE tallyweir.alert_delivery SET due_at = now()")
        server.refuses = True
        assert ["ALERT_CHANNEL_REFUSED"] == service.run_round()
        server.refuses = False
        home.execute("UPDATE tallyweir.alert_delivery SET due_at = now()")
        assert [] == service.run_round()
        service._end_tenure()
    (mail,) = server.mail
    assert ("tally", "hush") == server.logins[-1]
    assert f"[PAGE] {home.pipeline}: gone" == mail["subject"]
    assert "a@example.org, b@example.org" == mail["to"]
    assert "No driver is connected" in mail.get_content()
    assert re.fullmatch(r"<firing\.[0-9a-f-]{36}@tallyweir>", mail["message-id"])


def test_an_alertmanager_is_told_again_while_an_alert_lasts(
    home: RelayedHome, receiver: HttpReceiver, tmp_path: Path
) -> None:
    """It forgets what nobody repeats; at the end it is told when that was."""
    rules = write_rules(
        tmp_path,
        receiver.url,
        "  gone: {when: driver_gone, channels: [manager]}\n",
        f"  manager: {{kind: alertmanager, url: '{receiver.url}/'}}\n",
    )
    service = make_service(home, rules)
    for again in (False, True):
        if again:
            home.execute("UPDATE tallyweir.alert_delivery SET due_at = now()")
        assert [] == service.run_round()
        assert [] == service.run_round()
    home.execute(
        "INSERT INTO tallyweir.pause (pipeline, epoch, reason) "
        f"VALUES ('{home.pipeline}', 1, 'a test')"
    )
    assert [] == service.run_round()
    service._end_tenure()
    assert {"/api/v2/alerts"} == {one.path for one in receiver.posted}
    first, second, last = [one.json[0] for one in receiver.posted]
    assert first["labels"] == second["labels"] == last["labels"]
    assert first["startsAt"] == second["startsAt"] == last["startsAt"]
    now = datetime.now(UTC)
    for one, lasts in ((first, True), (second, True), (last, False)):
        assert lasts == (datetime.fromisoformat(one["endsAt"]) > now)


def test_a_real_alertmanager_shows_the_alert_and_then_does_not(
    home: RelayedHome, receiver: HttpReceiver, tmp_path: Path
) -> None:
    """Debian's, which checks what it is sent."""
    with running_alertmanager(tmp_path) as url:
        rules = write_rules(
            tmp_path,
            receiver.url,
            "  gone: {when: driver_gone, severity: page, channels: [manager]}\n",
            f"  manager: {{kind: alertmanager, url: '{url}'}}\n",
        )
        service = make_service(home, rules)
        assert [] == service.run_round()
        (shown,) = active_alerts(url)
        assert ("gone", home.pipeline, "page") == tuple(
            shown["labels"][name] for name in ("alertname", "pipeline", "severity")
        )
        home.execute("UPDATE tallyweir.alert_delivery SET due_at = now()")
        assert [] == service.run_round()
        (again,) = active_alerts(url)
        assert shown["fingerprint"] == again["fingerprint"]
        home.execute(
            "INSERT INTO tallyweir.pause (pipeline, epoch, reason) "
            f"VALUES ('{home.pipeline}', 1, 'a test')"
        )
        assert [] == service.run_round()
        service._end_tenure()
        wait_for(lambda: active_alerts(url) == [], "the end of the alert")


def test_a_server_that_never_ends_its_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time for all of it counts, not only that between two bytes."""
    monkeypatch.setattr(channels, "TIMEOUT_S", 1.0)
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        peer, _ = listener.accept()
        with peer:
            try:
                while True:
                    peer.sendall(b"H")
                    time.sleep(0.1)
            except OSError:
                return

    dripping = threading.Thread(target=drip)
    dripping.start()
    begun = time.monotonic()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    with pytest.raises(RetryableError, match="ALERT_CHANNEL_UNREACHABLE"):
        channels.post("hook", url, b"{}", {})
    assert time.monotonic() - begun < 4
    dripping.join()
    listener.close()
