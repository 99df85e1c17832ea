"""IDs of several values, and columns of keys, against plain Python."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from tallyweir.schemas.event_contracts import load_key_contracts
from tallyweir.spark_jobs.task.record_columns import join_ids

#: What a text of an ID may hold that its encoding could confuse.
_TRAPS = ('"', "\\", ",", "[", "]", "\n", "\x00", "\x1f", "\x7f", "é", "𝄞", "\u2028")


def _text(source: random.Random) -> str | None:
    if source.random() < 0.1:
        return None
    return "".join(source.choices((*_TRAPS, "a", "1"), k=source.randrange(4)))


def _number(source: random.Random) -> int | None:
    if source.random() < 0.1:
        return None
    return source.choice([0, -1, source.getrandbits(63), -source.getrandbits(63)])


def _bytes(source: random.Random) -> bytes | None:
    return None if source.random() < 0.1 else source.randbytes(source.randrange(3))


@pytest.mark.parametrize("seed", range(20))
def test_an_id_of_several_values_is_their_json_array(seed: int) -> None:
    """Python's own JSON reads the values back, so no two rows share a text."""
    source = random.Random(seed)
    rows = [
        (_text(source), _number(source), _bytes(source), _text(source))
        for _ in range(500)
    ]
    types = (pa.string(), pa.int64(), pa.binary(), pa.string())
    columns = [
        pa.array(column, kind)
        for column, kind in zip(zip(*rows, strict=True), types, strict=True)
    ]
    ids = join_ids(columns).to_pylist()
    for row, found in zip(rows, ids, strict=True):
        if None in row:
            assert found is None
            continue
        shown = [one.hex() if isinstance(one, bytes) else one for one in row]
        assert found == json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
        assert json.loads(found) == shown


def test_a_batch_of_keys_may_be_messages(tmp_path: Path) -> None:
    """A key that is none, or no key, has nulls."""
    text = 'syntax = "proto3"; message K { int64 id = 1; optional string s = 2; }'
    (tmp_path / "key.proto").write_text(text)
    contracts = load_key_contracts("key.proto#K", tmp_path)
    assert ["key_id", "key_s"] == [one.name for one in contracts.fields]
    assert not contracts.may_lack
    keys = [b"\x08\7", None, b"", b"\x08", b"\x08\7\x12\1x"]
    found = contracts.decoder(["key_id", "key_s"]).decode(pa.array(keys, pa.binary()))
    assert [7, None, 0, None, 7] == found.columns["id"].to_pylist()
    assert [None, None, None, None, "x"] == found.columns["s"].to_pylist()
    faults = [contracts.find_fault(one) for one in keys]
    assert [True, False, True, False, True] == found.is_event.tolist()
    assert [True, True, True, False, True] == [one is None for one in faults]


@pytest.mark.parametrize("kind", ["text", "bigint"])
@pytest.mark.parametrize("seed", range(10))
def test_a_batch_of_plain_keys_is_read_as_one_by_one(kind: str, seed: int) -> None:
    """The decoder of batches and that of one key agree about every key."""
    source = random.Random(seed)
    good = b"plain" if kind == "text" else struct.pack(">q", -7)
    keys = [
        source.choice(
            [None, good, b"", source.randbytes(8), b"a\0b", "é𝄞".encode(), b"\xc3("]
        )
        for _ in range(source.randrange(200))
    ]
    contracts = load_key_contracts(kind)
    padded = pa.array([b"x", *keys, b"y"], pa.binary())[1:-1]
    found = contracts.decoder(["key"]).decode(padded)
    values = found.columns["key"].to_pylist()
    for key, value, is_key in zip(keys, values, found.is_event.tolist(), strict=True):
        assert is_key == (key is not None and contracts.find_fault(key) is None)
        if not is_key:
            assert value is None
        elif kind == "text":
            assert key is not None
            assert value == key.decode()
        else:
            assert key is not None
            assert value == int.from_bytes(key, signed=True)
