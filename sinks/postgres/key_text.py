"""Keys as text: how they are stored, compared and spread over tasks."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

#: Types whose every value has one spelling in JSON.
KEY_TYPES = frozenset({"text", "smallint", "integer", "bigint", "boolean"})


def format_key(values: Sequence[Any]) -> str:
    """Write a key's values as one line of text, each key in one way only."""
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))


def parse_key(text: str) -> tuple[Any, ...]:
    """Read what ``format_key`` wrote."""
    return tuple(json.loads(text))


def shard_of(key: str, shards: int) -> int:
    """Choose the shard of a key; the same for ever, because timers are filed by it."""
    return zlib.crc32(key.encode()) % shards
