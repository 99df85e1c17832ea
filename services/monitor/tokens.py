"""Tokens that may see payloads and do acts on the monitor's page, kept as hashes.

A token has the form ``twm_<id>_<secret>``.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tallyweir.services.process.hashed_secrets import (
    HashedSecret,
    MalformedSecretError,
    SecretKind,
    SecretRing,
    Signature,
    draw_secret,
    read_secrets,
    sign_file,
)
from tallyweir.services.process.refusals import RefusedError

TOKENS_FILE_VARIABLE = "TALLYWEIR_MONITOR_TOKENS_FILE"

_PREFIX = "twm"
_NAME = re.compile(r"[a-z][a-z0-9.-]{0,39}")


class Role(Enum):
    """What a token may do; each role includes the roles before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def may(self, wanted: Role) -> bool:
        """Return whether this role is enough."""
        order = list(Role)
        return order.index(self) >= order.index(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageToken(HashedSecret):
    """One token, as the file has it.

    Attributes:
        name: Name of its user; every act is noted with it.
        role: What it may do.
    """

    name: str
    role: Role


class TokenFile:
    """The tokens of a file, read again when it changes; None for no tokens.

    Raises:
        ConfigurationError: The file cannot be read, or is not valid.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._signature: Signature | None = None
        self._ring = SecretRing[PageToken](_PREFIX, [])
        self._reload_if_changed()

    @property
    def is_given(self) -> bool:
        """Whether there is a tokens file."""
        return self._path is not None

    def authenticate(self, authorization: str | None, now: dt.datetime) -> PageToken:
        """Find the token of a request by its ``Authorization`` header.

        Raises:
            RefusedError: ``UNAUTHENTICATED``, whatever the reason.
            ConfigurationError: The file has changed and is not valid.
        """
        self._reload_if_changed()
        token = self._ring.find((authorization or "").encode(), now)
        if token is None:
            raise RefusedError(
                "UNAUTHENTICATED",
                status=401,
                saw="The request has no valid token.",
                why="Payloads and acts need a token.",
                fix="Enter a token; tallyweir monitor-tokens create makes one.",
            )
        return token

    def _reload_if_changed(self) -> None:
        if self._path is None:
            return
        signature = sign_file(self._path, PAGE_TOKENS)
        if signature != self._signature:
            known = read_secrets(self._path, PAGE_TOKENS)
            self._ring = SecretRing(_PREFIX, known)
            # Set it last: while the file is broken, no token of the former file works.
            self._signature = signature


def make_token(
    *, name: str, role: Role, not_after: dt.datetime | None
) -> tuple[PageToken, str]:
    """Make a token; return it and its text, which is stored nowhere."""
    kept, text = draw_secret(_PREFIX, not_after=not_after)
    return _with(kept, name=name, role=role), text


def _with(kept: HashedSecret, *, name: str, role: Role) -> PageToken:
    return PageToken(
        id=kept.id, name=name, role=role, sha256=kept.sha256, not_after=kept.not_after
    )


def _read(entry: Mapping[str, Any], kept: HashedSecret) -> PageToken:
    return _with(kept, name=str(entry["name"]), role=Role(entry["role"]))


def _write(token: PageToken) -> Mapping[str, object]:
    return {"name": token.name, "role": token.role.value}


def _check(token: PageToken) -> None:
    if not _NAME.fullmatch(token.name):
        raise MalformedSecretError(
            f"has a token of {token.name[:40]!r}: a name is small letters, digits, "
            "dots and -, at most 40"
        )


PAGE_TOKENS = SecretKind(
    word="token",
    command="monitor-tokens",
    variable=TOKENS_FILE_VARIABLE,
    unreadable="TOKENS_UNREADABLE",
    malformed="TOKENS_MALFORMED",
    unknown="TOKEN_UNKNOWN",
    members=frozenset({"name", "role"}),
    read=_read,
    write=_write,
    check=_check,
    check_together=lambda _tokens: None,
)
