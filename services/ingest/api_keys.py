"""API keys, ``tw_<id>_<secret>``, and the file that keeps their hashes: who may send.

``tallyweir ingest-keys`` writes the file and the service reads it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from tallyweir.services.process.hashed_secrets import (
    HashedSecret,
    MalformedSecretError,
    SecretKind,
    SecretRing,
    draw_secret,
    read_secrets,
    sign_file,
    utc_now,
)
from tallyweir.services.process.refusals import RefusedError
from tallyweir.sinks.protocol.errors import ConfigurationError

ACTIVE_KEYS_MAX = 2
PREFIX_BYTES_MAX = 64

#: Every key begins with this.
PREFIX = "tw"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey(HashedSecret):
    """One key, as the keys file holds it.

    Attributes:
        producer: The producer that owns the key.
        topics: The topics that the key is for.
        id_prefix: The prefix of all event IDs of the producer.
    """

    producer: str
    topics: frozenset[str]
    id_prefix: str


class KeyRing:
    """All keys, ready to authenticate requests.

    Raises:
        ConfigurationError: ``KEYS_CONFLICT``: two keys have one id, a producer has too
            many keys, or two producers of a topic could use the same event ID.
    """

    def __init__(self, keys: Iterable[ApiKey], *, now: dt.datetime) -> None:
        self.keys = tuple(keys)
        _require_distinct(self.keys)
        _require_two_at_most(self.keys, now)
        _require_scopes_apart(self.keys)
        self._ring = SecretRing(PREFIX, self.keys)

    def authenticate(self, authorization: bytes | None, now: dt.datetime) -> ApiKey:
        """Find the key of a request by its ``Authorization`` header.

        Raises:
            RefusedError: ``UNAUTHENTICATED``, whatever the reason.
        """
        key = self._ring.find(authorization, now)
        if key is None:
            raise RefusedError(
                "UNAUTHENTICATED",
                status=401,
                saw="The request has no valid API key.",
                why="The key says whose event IDs the request sends.",
                fix="Send the header Authorization: Bearer tw_ID_SECRET.",
            )
        return key


def make_key(
    *,
    producer: str,
    topics: Iterable[str],
    id_prefix: str,
    not_after: dt.datetime | None,
) -> tuple[ApiKey, str]:
    """Make a key; return it and its text, which is not stored anywhere."""
    kept, text = draw_secret(PREFIX, not_after=not_after)
    key = ApiKey(
        id=kept.id,
        producer=producer,
        sha256=kept.sha256,
        topics=frozenset(topics),
        id_prefix=id_prefix,
        not_after=kept.not_after,
    )
    return key, text


def _require_distinct(keys: tuple[ApiKey, ...]) -> None:
    if len({key.id for key in keys}) != len(keys):
        raise _conflict(
            "Two keys have the same id.",
            why="An id must identify one key.",
            fix="Remove one of them.",
        )


def _require_two_at_most(keys: tuple[ApiKey, ...], now: dt.datetime) -> None:
    for producer in {key.producer for key in keys}:
        own = [key for key in keys if key.producer == producer]
        if sum(key.is_active(now) for key in own) > ACTIVE_KEYS_MAX:
            raise _conflict(
                f"The producer {producer} has more than {ACTIVE_KEYS_MAX} active keys.",
                why="Two keys are enough for rotation; a third is probably a forgotten "
                "one.",
                fix="Revoke one: tallyweir ingest-keys revoke ID.",
            )
        if len({key.id_prefix for key in own}) > 1:
            raise _conflict(
                f"The keys of {producer} have different ID prefixes.",
                why="A retry with the other key would count as another event.",
                fix="Give them the same --id-prefix.",
            )


def _require_scopes_apart(keys: tuple[ApiKey, ...]) -> None:
    # Expired keys count: the pipelines still remember the IDs of their events.
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
                why="One producer could use the other's event IDs, and so make the "
                "other's events look like repeats.",
                fix="Choose prefixes such as NAME:, so that no prefix begins another "
                "one.",
            )


def _conflict(saw: str, *, why: str, fix: str) -> ConfigurationError:
    return ConfigurationError("KEYS_CONFLICT", saw=saw, why=why, fix=fix)


KEYS_FILE_VARIABLE = "TALLYWEIR_INGEST_KEYS_FILE"

_PRODUCER = re.compile(r"[a-z][a-z0-9-]{0,39}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class KeyFile:
    """The keys of a file, in its newest valid version.

    Args:
        path: The file's path.

    Raises:
        ConfigurationError: The file cannot be read, or holds no valid keys.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._signature = sign_file(path, API_KEYS)
        self.ring = KeyRing(read_secrets(path, API_KEYS), now=utc_now())

    def reload_if_changed(self) -> bool:
        """Read the file again if it has changed; return whether it has.

        Raises:
            ConfigurationError: The file changed and is not valid. The former keys stay
                until the file changes again and is valid.
        """
        signature = sign_file(self._path, API_KEYS)
        if signature == self._signature:
            return False
        # Set this first, so that a broken file is reported once, not at every call.
        self._signature = signature
        self.ring = KeyRing(read_secrets(self._path, API_KEYS), now=utc_now())
        return True


def _read(entry: Mapping[str, Any], kept: HashedSecret) -> ApiKey:
    topics = entry["topics"]
    if not isinstance(topics, list):
        raise MalformedSecretError("has a key whose topics are not a list")
    return ApiKey(
        id=kept.id,
        producer=str(entry["producer"]),
        sha256=kept.sha256,
        topics=frozenset(map(str, topics)),
        id_prefix=str(entry["id_prefix"]),
        not_after=kept.not_after,
    )


def _write(key: ApiKey) -> Mapping[str, object]:
    return {
        "producer": key.producer,
        "topics": sorted(key.topics),
        "id_prefix": key.id_prefix,
    }


def _check(key: ApiKey) -> None:
    shown = f"has a key of {key.producer[:40]!r}"
    if not _PRODUCER.fullmatch(key.producer):
        raise MalformedSecretError(
            f"{shown}: a name is small letters, digits and -, at most 40"
        )
    if not key.topics or not all(map(_TOPIC.fullmatch, key.topics)):
        raise MalformedSecretError(
            f"{shown} without topics, or with invalid topic names"
        )
    if len(key.id_prefix) > PREFIX_BYTES_MAX or not (
        key.id_prefix.isascii() and (key.id_prefix + ".").isprintable()
    ):
        raise MalformedSecretError(
            f"{shown} whose ID prefix is not short printable ASCII"
        )


def _check_together(keys: Sequence[ApiKey]) -> None:
    # Expired keys count, so that the ID prefix of a revoked key stays taken.
    KeyRing(keys, now=utc_now())


API_KEYS = SecretKind(
    word="key",
    command="ingest-keys",
    variable=KEYS_FILE_VARIABLE,
    unreadable="KEYS_UNREADABLE",
    malformed="KEYS_MALFORMED",
    unknown="KEY_UNKNOWN",
    members=frozenset({"producer", "topics", "id_prefix"}),
    read=_read,
    write=_write,
    check=_check,
    check_together=_check_together,
)
