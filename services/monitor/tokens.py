"""Who may see payloads and act on the monitor's page: tokens, of which hashes are kept.

A token reads ``twm_<id>_<secret>``, as an API key of the ingest service does, and is
checked in the same way: whatever is wrong with it, the answer is the same, after the
same work.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hmac
import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from services.embedded.state_directory import exclusive, write_whole
from services.ingest.http.api_keys import hash_secret
from services.ingest.http.key_file import FILE_BYTES_MAX, utc_now
from services.ingest.http.refusals import RefusedError
from sinks.protocol.errors import ConfigurationError

TOKENS_FILE_VARIABLE = "TALLYWEIR_MONITOR_TOKENS_FILE"

_TOKEN = re.compile(r"[Bb]earer +twm_([0-9a-f]{12})_([0-9a-f]{64})")
_NAME = re.compile(r"[a-z][a-z0-9.-]{0,39}")
_MEMBERS = {"id", "name", "role", "sha256", "not_after"}


class Role(Enum):
    """What a token is for; each role may also do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"

    def may(self, wanted: Role) -> bool:
        """Tell whether this role is enough."""
        order = list(Role)
        return order.index(self) >= order.index(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageToken:
    """One token, as the file has it.

    Attributes:
        token_id: The public half of the token.
        name: Whose it is; every act is noted with it.
        role: What it is for.
        secret_sha256: Hash of the other half, as hexadecimal digits.
        not_after: From then on it is refused; None for never.
    """

    token_id: str
    name: str
    role: Role
    secret_sha256: str = field(repr=False)
    not_after: dt.datetime | None = None

    def is_active(self, now: dt.datetime) -> bool:
        """Whether it is not yet expired."""
        return self.not_after is None or now < self.not_after


class TokenFile:
    """The tokens of a file, which may change while it is asked; None for no tokens.

    Raises:
        ConfigurationError: The file cannot be read, or is not valid.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._signature: tuple[int, int, int] | None = None
        self._by_id: dict[str, PageToken] = {}
        # What an unknown id is compared with; nobody knows a secret of this hash.
        self._decoy = hash_secret(secrets.token_hex(32).encode())
        self._reload_if_changed()

    @property
    def is_given(self) -> bool:
        """Whether anybody can have a token at all."""
        return self._path is not None

    def authenticate(self, authorization: str | None, now: dt.datetime) -> PageToken:
        """Find the token of a request by its ``Authorization`` header.

        Raises:
            RefusedError: ``UNAUTHENTICATED``, whatever the reason.
            ConfigurationError: The file has changed and is not valid.
        """
        self._reload_if_changed()
        match = _TOKEN.fullmatch(authorization or "")
        token_id, secret = match.groups() if match else ("", "")
        token = self._by_id.get(token_id)
        expected = self._decoy if token is None else token.secret_sha256
        is_right = hmac.compare_digest(hash_secret(secret.encode()), expected)
        if token is None or not is_right or not token.is_active(now):
            raise RefusedError(
                "UNAUTHENTICATED",
                status=401,
                saw="The request has no valid token.",
                why="What records hold, and acts, are not for everybody.",
                fix="Enter a token; tallyweir monitor-tokens create makes one.",
            )
        return token

    def _reload_if_changed(self) -> None:
        if self._path is None:
            return
        try:
            found = self._path.stat()
        except OSError as error:
            raise _unreadable(self._path, error) from error
        signature = found.st_mtime_ns, found.st_size, found.st_ino
        if signature != self._signature:
            self._by_id = {one.token_id: one for one in read_tokens(self._path)}
            self._signature = signature


def make_token(
    *, name: str, role: Role, not_after: dt.datetime | None
) -> tuple[PageToken, str]:
    """Make a token; return it and its text, which exists nowhere else."""
    token_id, secret = secrets.token_hex(6), secrets.token_hex(32)
    token = PageToken(
        token_id=token_id,
        name=name,
        role=role,
        secret_sha256=hash_secret(secret.encode()),
        not_after=not_after,
    )
    return token, f"twm_{token_id}_{secret}"


def read_tokens(path: Path) -> list[PageToken]:
    """Read the tokens of a file.

    Raises:
        ConfigurationError: ``TOKENS_UNREADABLE`` or ``TOKENS_MALFORMED``.
    """
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        return [_read_token(entry) for entry in json.loads(content)["tokens"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        # The parser's words could hold a part of the file.
        raise ConfigurationError(
            "TOKENS_MALFORMED",
            saw=f"{path} is not an object with a list of valid tokens.",
            why="A token that is half understood could let the wrong one in.",
            fix="Write the file with tallyweir monitor-tokens.",
        ) from error


def add_token(path: Path, token: PageToken) -> None:
    """Put one more token into a file, which is made when missing.

    Raises:
        ConfigurationError: ``TOKENS_MALFORMED``, ``TOKEN_NAME_MALFORMED``.

    Crash:
        The file is the old one or the new one.
    """
    if not _NAME.fullmatch(token.name):
        raise ConfigurationError(
            "TOKEN_NAME_MALFORMED",
            saw=f"{token.name[:50]!r} is no name for a token.",
            why="Acts are noted with it.",
            fix="Use small letters, digits, dots and -, at most 40.",
        )
    with exclusive(path.parent):
        tokens = read_tokens(path) if path.exists() else []
        _write_tokens(path, [*tokens, token])


def revoke_token(path: Path, token_id: str) -> None:
    """Let a token expire now.

    Raises:
        ConfigurationError: ``TOKEN_UNKNOWN``, or the file is not valid.

    Crash:
        The file is the old one or the new one.
    """
    now = utc_now().replace(microsecond=0)
    with exclusive(path.parent):
        tokens = read_tokens(path)
        if token_id not in {one.token_id for one in tokens}:
            raise ConfigurationError(
                "TOKEN_UNKNOWN",
                saw=f"{path} has no token with the id {token_id[:20]!r}.",
                why="Nothing was revoked.",
                fix="See the ids with tallyweir monitor-tokens list.",
            )
        revoked = [
            dataclasses.replace(one, not_after=now)
            if one.token_id == token_id and one.is_active(now)
            else one
            for one in tokens
        ]
        _write_tokens(path, revoked)


def _write_tokens(path: Path, tokens: Iterable[PageToken]) -> None:
    entries = [
        {
            "id": one.token_id,
            "name": one.name,
            "role": one.role.value,
            "sha256": one.secret_sha256,
            "not_after": one.not_after and one.not_after.isoformat(),
        }
        for one in tokens
    ]
    write_whole(path, json.dumps({"tokens": entries}, indent=1) + "\n", mode=0o640)


def _read_token(entry: dict[str, str | None]) -> PageToken:
    if not set(entry) <= _MEMBERS:
        raise ValueError("other members")
    not_after = entry.get("not_after")
    token = PageToken(
        token_id=str(entry["id"]),
        name=str(entry["name"]),
        role=Role(entry["role"]),
        secret_sha256=str(entry["sha256"]),
        not_after=None if not_after is None else dt.datetime.fromisoformat(not_after),
    )
    is_zoned = token.not_after is None or token.not_after.tzinfo is not None
    is_hashed = re.fullmatch(r"[0-9a-f]{64}", token.secret_sha256)
    if not (_NAME.fullmatch(token.name) and is_hashed and is_zoned):
        raise ValueError("malformed member")
    return token


def _unreadable(path: Path, cause: OSError) -> ConfigurationError:
    return ConfigurationError(
        "TOKENS_UNREADABLE",
        saw=f"The tokens file {path} cannot be read ({cause.strerror}).",
        why="Without it nobody could be told from anybody else.",
        fix="Make one with tallyweir monitor-tokens create, and name it in "
        f"{TOKENS_FILE_VARIABLE}.",
    )
