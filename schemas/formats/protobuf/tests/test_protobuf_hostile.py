"""No payload costs more than its bytes.

``python -m`` this module with a number reads that many hostile payloads, and prints the
seconds and the memory at the end.
"""

from __future__ import annotations

import resource
import sys
import time
from random import Random

import pyarrow as pa
import pytest

from tallyweir.schemas.codec import diagnose, encode
from tallyweir.schemas.formats.protobuf.protobuf_decoder import ProtobufDecoder
from tallyweir.schemas.formats.protobuf.tests.made_messages import varint
from tallyweir.schemas.formats.protobuf.tests.proto_contracts import (
    contract_of,
    contracts_of,
)
from tallyweir.schemas.formats.protobuf.tests.test_protobuf_differential import damaged

_FIELDS = "".join(f"int32 f{number} = {number};" for number in range(1, 41))
_SOURCE = f"""
message Item {{ {_FIELDS} repeated Item items = 41; }}
message M {{ repeated Item items = 1; string id = 2; map<string, Item> by_name = 3;
  repeated bool flags = 4; }}
"""
CONTRACT = contract_of(_SOURCE)
_MEGABYTE = 1 << 20

_HOSTILE = {
    "a million lengths": b"\x12\xff\xff\xff\xff\x07" * (_MEGABYTE // 6),
    "groups in groups": b"\x0b" * _MEGABYTE,
    "groups beside groups": b"\x2b\x2c" * (_MEGABYTE // 2),
    "varints without an end": b"\x08" + b"\xff" * _MEGABYTE,
    "unknown fields": b"\x28\x01" * (_MEGABYTE // 2),
    "one field again and again": b"\x12\x01x" * (_MEGABYTE // 3),
    "flags": b"\x22" + varint(_MEGABYTE) + b"\x01" * _MEGABYTE,
    "empty entries": b"\x1a\x00" * (_MEGABYTE // 2),
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_a_megabyte_of_anything_takes_seconds(name: str) -> None:
    """Whatever it is, and it is an event or a dead letter."""
    started = time.process_time()
    diagnose(_HOSTILE[name], {1: CONTRACT})
    assert time.process_time() - started < 20


def test_a_megabyte_of_empty_messages_does_not_become_a_gigabyte() -> None:
    """Each of its fields would have a value in JSON."""
    few = b"\x0a\x00" * 1_000
    assert diagnose(few, {1: CONTRACT}) is None
    error = diagnose(few * 500, {1: CONTRACT})
    assert error is not None
    assert "OUT_OF_RANGE: field items: as JSON, the message" in str(error)
    unknown = diagnose(few * 500 + b"\x28\x01", {1: CONTRACT})
    assert "OUT_OF_RANGE" in str(unknown)


def _read(count: int) -> None:
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}", flush=True)  # noqa: T201
    source = Random(seed)
    decoder = ProtobufDecoder(contracts_of(CONTRACT), ["id", "items"])
    items = '[{"f1": 5, "items": [{"f40": -1}]}]'
    record: dict[str, object] = {"id": "a", "items": items, "flags": "[true]"}
    good = encode(CONTRACT, record | {"by_name": '{"a": {"f2": 1}}'})
    started, events = time.process_time(), 0
    for done in range(0, count, 10_000):
        payloads = [damaged(source, good) for _ in range(10_000)]
        events += int(decoder.decode(pa.array(payloads, pa.binary())).is_event.sum())
        if done in {0, count // 2, count - 10_000}:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            seconds = time.process_time() - started
            print(done, events, f"{seconds:.0f} s, {peak} MiB", flush=True)  # noqa: T201


if __name__ == "__main__":
    _read(int(sys.argv[1]))
