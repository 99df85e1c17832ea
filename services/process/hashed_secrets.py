"""Secrets that requests show and of which a file keeps hashes: API keys and tokens.

A secret reads ``<prefix>_<id>_<secret>``. Its last part has 256 random bits, so one
SHA-256 is as good as any slow hash. Every wrong secret gets the same answer, after the
same work. The file holds nothing that a request could show, but a user who may write it
can take any identity.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from tallyweir.services.local.embedded.state_directory import exclusive, write_whole
from tallyweir.sinks.protocol.errors import ConfigurationError

FILE_BYTES_MAX = 1_000_000

_ID_BYTES = 6
_SECRET_BYTES = 32
_ID = re.compile(r"[0-9a-f]{12}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MEMBERS = frozenset({"id", "sha256", "not_after"})

Signature = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedSecret:
    """One secret, as the file holds it.

    Attributes:
        id: The public part of the secret's text.
        sha256: The hash of the secret part, as hexadecimal digits.
        not_after: From this time on it is refused; None if it does not expire.
    """

    id: str
    sha256: str = field(repr=False)
    not_after: dt.datetime | None = None

    def is_active(self, now: dt.datetime) -> bool:
        """Whether the secret has not expired."""
        return self.not_after is None or now < self.not_after


_Secret = TypeVar("_Secret", bound=HashedSecret)


class MalformedSecretError(ValueError):
    """A secret is malformed; the message holds no secret part of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKind(Generic[_Secret]):
    """The properties of one kind of secret.

    Attributes:
        word: The kind's name.
        command: The command that writes the file.
        variable: The environment variable that names the file.
        unreadable: The error code if the file cannot be read.
        malformed: The error code if the file, or a secret to be added, is not valid.
        unknown: The error code if the file does not have an id.
        members: The members of an entry other than its id, hash and expiry.
        read: Makes a secret from an entry and the parts that every kind has. Raises
            ``MalformedSecretError``, or ValueError, TypeError or KeyError.
        write: Returns the members of a secret.
        check: Raises ``MalformedSecretError`` if a secret is not valid.
        check_together: Raises ConfigurationError if the secrets are not valid together.
    """

    word: str
    command: str
    variable: str
    unreadable: str
    malformed: str
    unknown: str
    members: frozenset[str]
    read: Callable[[Mapping[str, Any], HashedSecret], _Secret]
    write: Callable[[_Secret], Mapping[str, object]]
    check: Callable[[_Secret], None]
    check_together: Callable[[Sequence[_Secret]], object]


class SecretRing(Generic[_Secret]):
    """All secrets of a kind, ready to check requests."""

    def __init__(self, prefix: str, known: Iterable[_Secret]) -> None:
        self._shown = re.compile(
            rb"[Bb]earer +" + prefix.encode() + rb"_([0-9a-f]{12})_([0-9a-f]{64})"
        )
        self._by_id = {one.id.encode(): one for one in known}
        # An unknown id is compared with this hash, whose secret is discarded.
        self._decoy = _hash(secrets.token_hex(_SECRET_BYTES).encode())

    def find(self, authorization: bytes | None, now: dt.datetime) -> _Secret | None:
        """Return the secret that an ``Authorization`` header shows, or None."""
        match = self._shown.fullmatch(authorization or b"")
        secret_id, secret = match.groups() if match else (b"", b"")
        found = self._by_id.get(secret_id)
        expected = self._decoy if found is None else found.sha256
        is_right = hmac.compare_digest(_hash(secret), expected)
        return found if found and is_right and found.is_active(now) else None


def draw_secret(
    prefix: str, *, not_after: dt.datetime | None
) -> tuple[HashedSecret, str]:
    """Draw a secret; return its hashed form and its text, which is not stored."""
    secret_id = secrets.token_hex(_ID_BYTES)
    secret = secrets.token_hex(_SECRET_BYTES)
    kept = HashedSecret(
        id=secret_id, sha256=_hash(secret.encode()), not_after=not_after
    )
    return kept, f"{prefix}_{secret_id}_{secret}"


def utc_now() -> dt.datetime:
    """Return the current time in UTC."""
    return dt.datetime.now(dt.UTC)


def sign_file(path: Path, kind: SecretKind[_Secret]) -> Signature:
    """Return a signature that differs for another version of a file.

    Raises:
        ConfigurationError: ``kind.unreadable``.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise _unreadable(path, kind, error) from error
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_secrets(path: Path, kind: SecretKind[_Secret]) -> list[_Secret]:
    """Read the secrets of a file.

    Raises:
        ConfigurationError: ``kind.unreadable`` or ``kind.malformed``.
    """
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(path, kind, error) from error
    try:
        return [_read_entry(entry, kind) for entry in json.loads(content)[_list(kind)]]
    except MalformedSecretError as error:
        raise _malformed(path, kind, str(error)) from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        # The parser's message could hold a part of the file.
        saw = f"is not an object with a list of valid {_list(kind)}"
        raise _malformed(path, kind, saw) from error


def add_secret(path: Path, kind: SecretKind[_Secret], secret: _Secret) -> None:
    """Add a secret to a file, which is created if it is missing.

    Raises:
        ConfigurationError: The file or the secret is not valid, or
            ``kind.check_together`` raises it.

    Crash:
        The file is the old one or the new one.
    """
    try:
        _check(secret, kind)
    except MalformedSecretError as error:
        raise _malformed(path, kind, str(error)) from error
    with exclusive(path.parent):
        known = read_secrets(path, kind) if path.exists() else []
        _write(path, kind, [*known, secret])


def revoke_secret(path: Path, kind: SecretKind[_Secret], secret_id: str) -> None:
    """Let a secret expire now; it stays in the file.

    Raises:
        ConfigurationError: ``kind.unknown``, or the file is not valid.

    Crash:
        The file is the old one or the new one.
    """
    with exclusive(path.parent):
        known = read_secrets(path, kind)
        if secret_id not in {one.id for one in known}:
            raise ConfigurationError(
                kind.unknown,
                saw=f"{path} has no {kind.word} with the id {secret_id[:20]!r}.",
                why="Nothing was revoked.",
                fix=f"List the ids with tallyweir {kind.command} list.",
            )
        now = utc_now().replace(microsecond=0)
        left = [
            dataclasses.replace(one, not_after=now)
            if one.id == secret_id and one.is_active(now)
            else one
            for one in known
        ]
        _write(path, kind, left)


def _write(path: Path, kind: SecretKind[_Secret], kept: Sequence[_Secret]) -> None:
    kind.check_together(kept)
    entries = [
        {
            "id": one.id,
            **kind.write(one),
            "sha256": one.sha256,
            "not_after": one.not_after and one.not_after.isoformat(),
        }
        for one in kept
    ]
    write_whole(path, json.dumps({_list(kind): entries}, indent=1) + "\n", mode=0o640)


def _read_entry(entry: Mapping[str, Any], kind: SecretKind[_Secret]) -> _Secret:
    members = _MEMBERS | kind.members
    if not set(entry) <= members:
        raise MalformedSecretError(
            f"has a {kind.word} with other members than {', '.join(sorted(members))}"
        )
    not_after = entry.get("not_after")
    kept = HashedSecret(
        id=str(entry["id"]),
        sha256=str(entry["sha256"]),
        not_after=None if not_after is None else dt.datetime.fromisoformat(not_after),
    )
    secret = kind.read(entry, kept)
    _check(secret, kind)
    return secret


def _check(secret: _Secret, kind: SecretKind[_Secret]) -> None:
    shown = f"has a {kind.word} with the id {secret.id[:20]!r}"
    if not _ID.fullmatch(secret.id):
        raise MalformedSecretError(f"{shown}, which is not 12 hexadecimal digits")
    if not _SHA256.fullmatch(secret.sha256):
        raise MalformedSecretError(f"{shown} whose sha256 is not 64 hexadecimal digits")
    if secret.not_after is not None and secret.not_after.tzinfo is None:
        raise MalformedSecretError(f"{shown} whose not_after has no offset from UTC")
    kind.check(secret)


def _list(kind: SecretKind[_Secret]) -> str:
    """The name of the list in the file."""
    return f"{kind.word}s"


def _hash(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()


def _unreadable(
    path: Path, kind: SecretKind[_Secret], cause: OSError
) -> ConfigurationError:
    return ConfigurationError(
        kind.unreadable,
        saw=f"The {kind.word}s file {path} cannot be read ({cause.strerror}).",
        why="The service knows its callers by this file.",
        fix=f"Create it with tallyweir {kind.command} create, and set its path in "
        f"{kind.variable}.",
    )


def _malformed(path: Path, kind: SecretKind[_Secret], saw: str) -> ConfigurationError:
    return ConfigurationError(
        kind.malformed,
        saw=f"{path} {saw}.",
        why=f"A {kind.word} that is misread could let the wrong caller in.",
        fix=f"Write the file with tallyweir {kind.command}.",
    )
