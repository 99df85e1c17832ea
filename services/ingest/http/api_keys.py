"""Who sends: API keys, of which only hashes are kept.

A key reads ``tw_<id>_<secret>``. The secret has 256 random bits, so one SHA-256 is
as good as any slow hash. Whatever is wrong with a key, the answer is the same, after
the same work.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations

from services.ingest.http.refusals import RefusedError
from sinks.protocol.errors import ConfigurationError

ACTIVE_KEYS_MAX = 2
PREFIX_BYTES_MAX = 64

_ID_BYTES = 6
_SECRET_BYTES = 32
_KEY = re.compile(rb"[Bb]earer +tw_([0-9a-f]{12})_([0-9a-f]{64})")
_NO_ID = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One key, as the keys file has it.

    Attributes:
        key_id: The public half of the key.
        producer: Whose it is.
        secret_sha256: Hash of the other half, as hexadecimal digits.
        topics: What it is for.
        id_prefix: What all event IDs of the producer begin with.
        not_after: From then on it is refused; None for never.
    """

    key_id: str
    producer: str
    secret_sha256: str = field(repr=False)
    topics: frozenset[str]
    id_prefix: str
    not_after: dt.datetime | None = None

    def is_active(self, now: dt.datetime) -> bool:
        """Whether it is not yet expired."""
        return self.not_after is None or now < self.not_after


class KeyRing:
    """All keys, ready to be asked.

    Raises:
        ConfigurationError: ``KEYS_CONFLICT``: two keys have one id, a producer has
            too many, or two producers of a topic have IDs that could be the same.
    """

    def __init__(self, keys: Iterable[ApiKey], *, now: dt.datetime) -> None:
        self.keys = tuple(keys)
        _require_distinct(self.keys)
        _require_two_at_most(self.keys, now)
        _require_scopes_apart(self.keys)
        self._by_id = {key.key_id.encode(): key for key in self.keys}
        # What an unknown id is compared with; nobody knows a secret of this hash.
        self._decoy = hash_secret(secrets.token_hex(_SECRET_BYTES).encode())

    def authenticate(self, authorization: bytes | None, now: dt.datetime) -> ApiKey:
        """Find the key of a request by its ``Authorization`` header.

        Raises:
            RefusedError: ``UNAUTHENTICATED``, whatever the reason.
        """
        match = _KEY.fullmatch(authorization or b"")
        key_id, secret = match.groups() if match else (_NO_ID, b"")
        key = self._by_id.get(key_id)
        expected = self._decoy if key is None else key.secret_sha256
        is_right = hmac.compare_digest(hash_secret(secret), expected)
        if key is None or not is_right or not key.is_active(now):
            raise RefusedError(
                "UNAUTHENTICATED",
                status=401,
                saw="The request has no valid API key.",
                why="Event IDs belong to the producer who sends them.",
                fix="Send the header Authorization: Bearer tw_ID_SECRET.",
            )
        return key


def hash_secret(secret: bytes) -> str:
    """Hash the secret half of a key as it is kept."""
    return hashlib.sha256(secret).hexdigest()


def make_key(
    *,
    producer: str,
    topics: Iterable[str],
    id_prefix: str,
    not_after: dt.datetime | None,
) -> tuple[ApiKey, str]:
    """Make a key; return it and its text, which exists nowhere else."""
    key_id = secrets.token_hex(_ID_BYTES)
    secret = secrets.token_hex(_SECRET_BYTES)
    key = ApiKey(
        key_id=key_id,
        producer=producer,
        secret_sha256=hash_secret(secret.encode()),
        topics=frozenset(topics),
        id_prefix=id_prefix,
        not_after=not_after,
    )
    return key, f"tw_{key_id}_{secret}"


def _require_distinct(keys: tuple[ApiKey, ...]) -> None:
    if len({key.key_id for key in keys}) != len(keys):
        raise _conflict(
            "Two keys have the same id.",
            why="An id must say which key it is.",
            fix="Remove one of them.",
        )


def _require_two_at_most(keys: tuple[ApiKey, ...], now: dt.datetime) -> None:
    for producer in {key.producer for key in keys}:
        own = [key for key in keys if key.producer == producer]
        if sum(key.is_active(now) for key in own) > ACTIVE_KEYS_MAX:
            raise _conflict(
                f"The producer {producer} has more than {ACTIVE_KEYS_MAX} active keys.",
                why="Two are for rotation; more are keys that nobody looks after.",
                fix="Revoke one: tallyweir ingest-keys revoke ID.",
            )
        if len({key.id_prefix for key in own}) > 1:
            raise _conflict(
                f"The keys of {producer} have different ID prefixes.",
                why="A retry with the other key would be another event.",
                fix="Give them the same --id-prefix.",
            )


def _require_scopes_apart(keys: tuple[ApiKey, ...]) -> None:
    # Expired keys count: their events' IDs are still remembered.
    for one, other in combinations(keys, 2):
        shared = one.topics & other.topics
        if one.producer == other.producer or not shared:
            continue
        if one.id_prefix.startswith(other.id_prefix) or other.id_prefix.startswith(
            one.id_prefix
        ):
            raise _conflict(
                f"{one.producer} ({one.id_prefix!r}) and {other.producer} "
                f"({other.id_prefix!r}) both write to {min(shared)}, and the ID "
                "prefix of one begins the other's.",
                why="One of them could name the other's events, and so drop them.",
                fix="Choose prefixes of which none begins another, such as NAME:.",
            )


def _conflict(saw: str, *, why: str, fix: str) -> ConfigurationError:
    return ConfigurationError("KEYS_CONFLICT", saw=saw, why=why, fix=fix)
