"""The file of API keys: written by ``tallyweir ingest-keys``, read by the service.

It holds no secret, but who may write it may send as anybody.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
from pathlib import Path
from typing import NoReturn

from services.embedded.state_directory import exclusive, write_whole
from services.ingest.http.api_keys import PREFIX_BYTES_MAX, ApiKey, KeyRing
from sinks.protocol.errors import ConfigurationError

KEYS_FILE_VARIABLE = "TALLYWEIR_INGEST_KEYS_FILE"
FILE_BYTES_MAX = 1_000_000

_PRODUCER = re.compile(r"[a-z][a-z0-9-]{0,39}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MEMBERS = {"id", "producer", "sha256", "topics", "id_prefix", "not_after"}

Signature = tuple[int, int, int]


class KeyFile:
    """The keys of a file; the newest good version of it.

    Args:
        path: Of the file.

    Raises:
        ConfigurationError: It cannot be read, or holds no valid keys.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._signature = _signature(path)
        self.ring = KeyRing(read_keys(path), now=utc_now())

    def reload_if_changed(self) -> bool:
        """Read the file again if it is another one; tell whether the keys are new.

        Raises:
            ConfigurationError: The file changed and is not valid: the former keys
                stay, and the next change is looked at again.
        """
        signature = _signature(self._path)
        if signature == self._signature:
            return False
        # First, so that a broken file is reported once, not at every look.
        self._signature = signature
        self.ring = KeyRing(read_keys(self._path), now=utc_now())
        return True


def utc_now() -> dt.datetime:
    """What the clock says."""
    return dt.datetime.now(dt.UTC)


def read_keys(path: Path) -> list[ApiKey]:
    """Read the keys of a file.

    Raises:
        ConfigurationError: ``KEYS_UNREADABLE`` or ``KEYS_MALFORMED``.
    """
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    try:
        entries = json.loads(content)["keys"]
        return [_read_key(path, entry) for entry in entries]
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        # The parser's words could hold a part of the file.
        raise _malformed_file(path, "is not an object with a list of keys") from exc


def add_key(path: Path, key: ApiKey) -> None:
    """Put one more key into a file, which is made when missing.

    Raises:
        ConfigurationError: The file is not valid, or the key conflicts with another.

    Crash:
        The file is the old one or the new one.
    """
    _require_key(path, key)
    with exclusive(path.parent):
        keys = read_keys(path) if path.exists() else []
        _write_keys(path, [*keys, key])


def revoke_key(path: Path, key_id: str) -> None:
    """Let a key expire now; it stays in the file, so that its ID prefix stays taken.

    Raises:
        ConfigurationError: ``KEY_UNKNOWN``, or the file is not valid.

    Crash:
        The file is the old one or the new one.
    """
    with exclusive(path.parent):
        keys = read_keys(path)
        if key_id not in {key.key_id for key in keys}:
            raise ConfigurationError(
                "KEY_UNKNOWN",
                saw=f"{path} has no key with the id {key_id[:20]!r}.",
                why="Nothing was revoked.",
                fix="See the ids with tallyweir ingest-keys list.",
            )
        now = utc_now().replace(microsecond=0)
        _write_keys(
            path,
            [
                dataclasses.replace(key, not_after=now)
                if key.key_id == key_id and key.is_active(now)
                else key
                for key in keys
            ],
        )


def _write_keys(path: Path, keys: list[ApiKey]) -> None:
    KeyRing(keys, now=utc_now())
    entries = [
        {
            "id": key.key_id,
            "producer": key.producer,
            "sha256": key.secret_sha256,
            "topics": sorted(key.topics),
            "id_prefix": key.id_prefix,
            "not_after": key.not_after and key.not_after.isoformat(),
        }
        for key in keys
    ]
    write_whole(path, json.dumps({"keys": entries}, indent=1) + "\n", mode=0o640)


def _read_key(path: Path, entry: object) -> ApiKey:
    if not isinstance(entry, dict) or not set(entry) <= _MEMBERS:
        _refuse(
            path, f"has a key with other members than {', '.join(sorted(_MEMBERS))}"
        )
    topics = entry["topics"]
    if not isinstance(topics, list):
        _refuse(path, "has a key whose topics are no list")
    not_after = entry.get("not_after")
    key = ApiKey(
        key_id=str(entry["id"]),
        producer=str(entry["producer"]),
        secret_sha256=str(entry["sha256"]),
        topics=frozenset(map(str, topics)),
        id_prefix=str(entry["id_prefix"]),
        not_after=None if not_after is None else dt.datetime.fromisoformat(not_after),
    )
    _require_key(path, key)
    return key


def _require_key(path: Path, key: ApiKey) -> None:
    shown = f"has a key of {key.producer[:40]!r}"
    if not re.fullmatch(r"[0-9a-f]{12}", key.key_id):
        _refuse(path, f"{shown} whose id is not 12 hexadecimal digits")
    if not re.fullmatch(r"[0-9a-f]{64}", key.secret_sha256):
        _refuse(path, f"{shown} whose sha256 is not 64 hexadecimal digits")
    if not _PRODUCER.fullmatch(key.producer):
        _refuse(path, f"{shown}: a name is small letters, digits and -, at most 40")
    if not key.topics or not all(map(_TOPIC.fullmatch, key.topics)):
        _refuse(path, f"{shown} without topics, or with names that no topic has")
    if len(key.id_prefix) > PREFIX_BYTES_MAX or not (
        key.id_prefix.isascii() and (key.id_prefix + ".").isprintable()
    ):
        _refuse(path, f"{shown} whose ID prefix is no short printable ASCII")
    if key.not_after is not None and key.not_after.tzinfo is None:
        _refuse(path, f"{shown} whose not_after has no offset from UTC")


def _signature(path: Path) -> Signature:
    try:
        found = path.stat()
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    return found.st_mtime_ns, found.st_size, found.st_ino


def _unreadable(path: Path, cause: OSError) -> ConfigurationError:
    return ConfigurationError(
        "KEYS_UNREADABLE",
        saw=f"The keys file {path} cannot be read ({cause.strerror}).",
        why="Without it nobody could be told from anybody else.",
        fix=f"Make one with tallyweir ingest-keys create, and name it in "
        f"{KEYS_FILE_VARIABLE}.",
    )


def _malformed_file(path: Path, saw: str) -> ConfigurationError:
    return ConfigurationError(
        "KEYS_MALFORMED",
        saw=f"{path} {saw}.",
        why="A key that is half understood could let the wrong one in.",
        fix="Write the file with tallyweir ingest-keys.",
    )


def _refuse(path: Path, saw: str) -> NoReturn:
    raise _malformed_file(path, saw)
