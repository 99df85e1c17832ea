"""Tokens of the monitor's page: who may do what, and nobody else."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from tallyweir.services.monitor.tokens import PAGE_TOKENS, Role, TokenFile, make_token
from tallyweir.services.process.hashed_secrets import (
    add_secret,
    read_secrets,
    revoke_secret,
    utc_now,
)
from tallyweir.services.process.refusals import RefusedError
from tallyweir.sinks.protocol.errors import ConfigurationError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is to be."""
    return tmp_path / "tokens.json"


def _add(path: Path, name: str, role: Role, **expiry: dt.datetime) -> str:
    token, text = make_token(name=name, role=role, not_after=expiry.get("not_after"))
    add_secret(path, PAGE_TOKENS, token)
    return text


def _code(tokens: TokenFile, authorization: str | None) -> str:
    with pytest.raises(RefusedError) as refused:
        tokens.authenticate(authorization, utc_now())
    return refused.value.code


def test_a_token_is_known_by_its_secret(path: Path) -> None:
    """Whose it is and what it is for come back; the file has only a hash."""
    text = _add(path, "ada", Role.OPERATOR)
    found = TokenFile(path).authenticate(f"Bearer {text}", utc_now())
    assert (found.name, found.role) == ("ada", Role.OPERATOR)
    assert text.rsplit("_", 1)[1] not in path.read_text()


def test_whatever_else_is_shown_is_refused_alike(path: Path) -> None:
    """An unknown id, another secret, another scheme, nothing, or no file at all."""
    text = _add(path, "ada", Role.OPERATOR)
    tokens = TokenFile(path)
    wrong = text[:-1] + ("0" if text[-1] != "0" else "1")
    unknown = text.replace(text[4:16], "0" * 12)
    for shown in (f"Bearer {wrong}", f"Bearer {unknown}", text, f"Basic {text}", None):
        assert _code(tokens, shown) == "UNAUTHENTICATED"
    assert _code(TokenFile(None), f"Bearer {text}") == "UNAUTHENTICATED"


def test_an_expired_or_revoked_token_is_refused(path: Path) -> None:
    """A running monitor sees it at its next request."""
    old = _add(path, "old", Role.VIEWER, not_after=utc_now() - dt.timedelta(seconds=1))
    text = _add(path, "ada", Role.VIEWER)
    tokens = TokenFile(path)
    assert _code(tokens, f"Bearer {old}") == "UNAUTHENTICATED"
    assert tokens.authenticate(f"Bearer {text}", utc_now()).name == "ada"
    revoke_secret(path, PAGE_TOKENS, text.split("_")[1])
    assert _code(tokens, f"Bearer {text}") == "UNAUTHENTICATED"


def test_an_operator_may_what_a_viewer_may_and_not_the_reverse() -> None:
    """Acts are more than looking."""
    assert Role.OPERATOR.may(Role.VIEWER)
    assert Role.VIEWER.may(Role.VIEWER)
    assert not Role.VIEWER.may(Role.OPERATOR)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("role", "root"),
        ("name", "Ada\n"),
        ("sha256", "12"),
        ("not_after", "2027-01-01T00:00:00"),
        ("more", "x"),
    ],
)
def test_a_file_that_is_half_understood_is_refused(
    path: Path, member: str, value: str
) -> None:
    """It could let the wrong one in."""
    _add(path, "ada", Role.VIEWER)
    content = json.loads(path.read_text())
    content["tokens"][0][member] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigurationError, match="TOKENS_MALFORMED"):
        read_secrets(path, PAGE_TOKENS)


def test_names_and_ids_that_cannot_be_are_refused(path: Path) -> None:
    """A name is in the notes of every act."""
    with pytest.raises(ConfigurationError, match="TOKENS_MALFORMED"):
        _add(path, "no name", Role.VIEWER)
    with pytest.raises(ConfigurationError, match="TOKENS_UNREADABLE"):
        TokenFile(path)
    _add(path, "ada", Role.VIEWER)
    with pytest.raises(ConfigurationError, match="TOKEN_UNKNOWN"):
        revoke_secret(path, PAGE_TOKENS, "0" * 12)
