"""Keys as text: how they are stored, compared and spread over tasks."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

#: Types whose every value has one spelling in JSON.
KEY_TYPES = frozenset({"text", "smallint", "integer", "bigint", "boolean"})

#: The most bytes that the values of a window's group, or a key as text, may have.
#: Postgres fails a statement that brings a B-tree an entry above 2,704 bytes. A longer
#: text may still fit if it compresses well, so the limit is for the text as it is. The
#: other 704 bytes are for the rest of the longest entry: header, window, pane and
#: padding of 30 columns; or the names of pipeline, table and state, which are at most
#: 230 bytes, and a map's key or a timer's name.
KEY_BYTES_MAX = 2_000

#: A map's key or a timer's name follows the state's key in an index. It may always have
#: this many bytes, and with a shorter key also the bytes that the key leaves free.
ENTRY_BYTES_MIN = 256


class EntryTooLongError(ValueError):
    """A function's name for a map's entry or a timer is too long.

    This class exists because errors of users' code are reported without their text.
    """


def format_key(values: Sequence[Any]) -> str:
    """Write a key's values as one line of text; each key has only one spelling."""
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))


def parse_key(text: str) -> tuple[Any, ...]:
    """Read what ``format_key`` wrote."""
    return tuple(json.loads(text))


def check_entry(key: str, entry: str) -> None:
    """Refuse a map's key or a timer's name that no index takes together with its key.

    Raises:
        EntryTooLongError: It is too long.
    """
    # A key stored before there was a limit may be longer, if it compresses well.
    room = KEY_BYTES_MAX + ENTRY_BYTES_MIN - len(key.encode())
    allowed = max(room, ENTRY_BYTES_MIN)
    size = len(entry.encode())
    if size > allowed:
        raise EntryTooLongError(
            f"a map's key, or a timer's name, has {size} bytes; "
            f"beside this key {allowed} are allowed"
        )


def shard_of(key: str, shards: int) -> int:
    """Choose the shard of a key; it never changes, because timers are filed by it."""
    return zlib.crc32(key.encode()) % shards
