"""Keys as text: how they are stored, compared and spread over tasks."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

#: Types whose every value has one spelling in JSON.
KEY_TYPES = frozenset({"text", "smallint", "integer", "bigint", "boolean"})

#: The values of a window's group together, or a key as text, have at most so many.
#: Postgres fails a statement that brings a B-tree an entry above 2,704 bytes. Whether a
#: longer text is one depends on how well it compresses, so it counts as it is. The
#: other 704 bytes are for what stands beside it in the longest entry: header, window,
#: pane and padding of 30 columns; or the names of pipeline, table and state, which are
#: at most 230 bytes, and the entry.
KEY_BYTES_MAX = 2_000

#: An entry of a map, or a timer's name, has its place beside the key. So many bytes
#: it may have beside any key, and beside a shorter key what that leaves.
ENTRY_BYTES_MIN = 256


class EntryTooLongError(ValueError):
    """A function gives something under its key a name that is too long.

    Its own class, because errors of users' code are told without their words.
    """


def format_key(values: Sequence[Any]) -> str:
    """Write a key's values as one line of text, each key in one way only."""
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))


def parse_key(text: str) -> tuple[Any, ...]:
    """Read what ``format_key`` wrote."""
    return tuple(json.loads(text))


def check_entry(key: str, entry: str) -> None:
    """Refuse a name of something under a key that no index takes beside the key.

    Raises:
        EntryTooLongError: It is too long.
    """
    # A key may be longer that was stored before there was a limit: it compresses well.
    room = KEY_BYTES_MAX + ENTRY_BYTES_MIN - len(key.encode())
    allowed = max(room, ENTRY_BYTES_MIN)
    size = len(entry.encode())
    if size > allowed:
        raise EntryTooLongError(
            f"a map's key, or a timer's name, has {size} bytes; "
            f"beside this key {allowed} are allowed"
        )


def shard_of(key: str, shards: int) -> int:
    """Choose the shard of a key; the same for ever, because timers are filed by it."""
    return zlib.crc32(key.encode()) % shards
