"""``doctor --alert-rules``: a file that is wrong fails, the rest is a warning."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallyweir.services.cli.doctor.checks import Check, check_rules


@pytest.fixture
def port() -> Iterator[int]:
    """Somebody has it, and does not listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def _check(
    tmp_path: Path, port: int, rule: str = "{when: stall, channels: [ops]}"
) -> list[Check]:
    path = tmp_path / "rules.yaml"
    path.write_text(
        f"channels:\n  ops: {{kind: webhook, url: 'http://127.0.0.1:{port}/hush'}}\n"
        f"rules:\n  r: {rule}\n"
    )
    return [*check_rules(path, None)]


def test_rules_with_a_channel_that_answers_are_well(tmp_path: Path) -> None:
    """One connection, and nothing is sent by it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = _check(tmp_path, server.getsockname()[1])
        server.settimeout(5)
        connection, _ = server.accept()
        with connection:
            connection.settimeout(5)
            assert b"" == connection.recv(1)
    assert [True, True] == [one.ok for one in found]
    assert not any(one.is_warning for one in found)


def test_a_channel_that_cannot_be_reached_is_a_warning(
    tmp_path: Path, port: int
) -> None:
    """The service may be elsewhere; and the address may be a secret."""
    rules, channel = _check(tmp_path, port)
    assert (False, True) == (rules.is_warning, channel.is_warning)
    assert "ops" in channel.saw
    assert "hush" not in channel.saw + channel.fix
    assert str(port) not in channel.saw + channel.fix


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("{when: stal, channels: [ops]}", "rules.r.when must be one of"),
        ("{when: stall, channels: [opps]}", "There is no channel 'opps'"),
        ("{when: over_budget, prices: p.yaml, channels: []}", "rules.r.prices"),
    ],
)
def test_a_file_that_is_wrong_fails(
    tmp_path: Path, port: int, rule: str, told: str
) -> None:
    """And nothing else is looked at."""
    (found,) = _check(tmp_path, port, rule)
    assert not found.ok
    assert told in found.saw
