"""The keys file, which ``tallyweir ingest-keys`` writes and the service reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tallyweir.services.ingest.api_keys import PREFIX_BYTES_MAX, ApiKey, KeyRing
from tallyweir.services.process.hashed_secrets import (
    HashedSecret,
    MalformedSecretError,
    SecretKind,
    read_secrets,
    sign_file,
    utc_now,
)

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
