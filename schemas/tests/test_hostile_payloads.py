"""Whatever the bytes are: an event, or a dead letter that says why; in bounded memory.

``python -m`` this module with a number runs so many payloads of each format.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from tallyweir.schemas.codec import diagnose
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.event_contracts import EventContract, EventContracts
from tallyweir.schemas.formats.avro.tests.made_payloads import PayloadMaker
from tallyweir.schemas.formats.framing import frame
from tallyweir.schemas.formats.json.tests.json_contracts import (
    contract_of as json_contract_of,
)
from tallyweir.schemas.formats.json.tests.made_documents import FIELDS, DocumentMaker
from tallyweir.schemas.formats.protobuf.framed_protobuf import FramedProtobuf
from tallyweir.schemas.formats.protobuf.tests.made_messages import (
    made_contract,
    made_message,
)
from tallyweir.schemas.schema_tree import is_flat
from tallyweir.schemas.tests.strategies import contract_of
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

_BATCH = 10_000
_BASES = 200
_MEBIBYTE = 1 << 20
_TOKENS = [
    *(b"\x00", b"\xff", b"\x80" * 11, b"\xff" * 9 + b"\x01", b"\xfe\xff\xff\xff\x0f"),
    *(b'"', b"\\", b"{", b"}", b"[[[[", b",", b":", b"null", b"1e999", b"\\ud800"),
    *(b"\xc3", b"\xed\xa0\x80", b"\x0a\xff\xff\xff\xff\x07", b"\x0b", b"\x0c", b" "),
]
_KINDS: list[object] = [
    *("boolean", "int", "long", "float", "double", "string", "bytes"),
    *(["null", "string"], ["long", "null"]),
    {"type": "string", "logicalType": "uuid"},
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
    {"type": "enum", "name": "E", "symbols": ["A", "B"]},
    {"type": "fixed", "name": "F", "size": 5},
    {"type": "array", "items": ["null", "long"]},
    {"type": "map", "values": {"type": "array", "items": "string"}},
]
Corpus = tuple[Contract, list[bytes]]


def avro_corpus(seed: int) -> Corpus:
    """Make a contract of all types, and payloads of it with slips."""
    fields = [{"name": f"f{n}", "type": kind} for n, kind in enumerate(_KINDS)]
    contract = contract_of({"type": "record", "name": "R", "fields": fields})
    maker = PayloadMaker(seed, slips=0.05)
    made = [frame(7, maker.make(contract.tree)) for _ in range(_BASES)]
    return contract, made


def json_corpus(seed: int) -> Corpus:
    """Make a contract of all types, and documents of it with slips."""
    maker = DocumentMaker(seed, slips=0.05)
    contract = json_contract_of(FIELDS, ("ignore", "rest", "refuse")[seed % 3])
    return contract, [maker.write(maker.make()) for _ in range(_BASES)]


def protobuf_corpus(seed: int) -> Corpus:
    """Make the contract of a random message, and such messages."""
    source = Random(seed)
    contract = made_contract(source)
    made = [
        made_message(source, contract).SerializePartialToString() for _ in range(_BASES)
    ]
    return contract, [one or b"\0" for one in made]


def framed_protobuf_corpus(seed: int) -> Corpus:
    """Make the same behind a registry's header and indexes."""
    contract, messages = protobuf_corpus(seed)
    *_, own = json.loads(contract.text)["files"]
    form = FramedProtobuf()
    schema = RegisteredSchema(schema_id=7, kind=form.registry_kind, text=own)
    text = form.read_registered(schema, "M").text
    contract = replace(contract, schema_id=7, format=form, text=text)
    return contract, [frame(7, b"\0" + one) for one in messages]


CORPORA: dict[str, Callable[[int], Corpus]] = {
    "avro": avro_corpus,
    "json": json_corpus,
    "protobuf": protobuf_corpus,
    "framed-protobuf": framed_protobuf_corpus,
}


def hostile(source: Random, bases: list[bytes]) -> bytes:
    """Damage a payload once, or several times; a few stay whole."""
    payload = source.choice(bases)
    for _ in range(source.choice([0, 1, 1, 1, 2, 5])):
        at = source.randrange(len(payload) + 1)
        until = at + source.choice([0, 1, 4, 1_000])
        other = source.choice(bases)
        inside = source.choice(
            [
                b"",
                source.choice(_TOKENS),
                source.randbytes(source.choice([1, 8])),
                other[source.randrange(len(other)) :],
                payload[at:] * 2,
            ]
        )
        payload = payload[:at] + inside + payload[until:]
    return payload[: 1 << 14]


def check_batch(corpus: Callable[[int], Corpus], seed: int, size: int) -> int:
    """Check that a batch is read as single payloads are; return the events' number."""
    contract, bases = corpus(seed)
    source = Random(seed)
    payloads = [hostile(source, bases) for _ in range(size)]
    writers = {contract.schema_id: contract}
    contracts = EventContracts((EventContract(contract=contract, writers=writers),))
    wanted = [one.name for one in contract.tree.fields if is_flat(one.node)]
    decoded = contracts.decoder(wanted).decode(pa.array(payloads, pa.binary()))
    for column in decoded.columns.values():
        column.validate(full=True)
    for payload, is_event in zip(payloads, decoded.is_event.tolist(), strict=True):
        fault = diagnose(payload, writers)
        assert is_event == (fault is None), (seed, payload)
        assert fault is None or (fault.reason_code and str(fault)), (seed, payload)
    return int(decoded.is_event.sum())


def resident_bytes() -> int:
    """Return how much memory the process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4_096


def run(name: str, first: int, batches: int, size: int) -> Iterator[int]:
    """Check batches; yield the memory after each."""
    for number in range(batches):
        check_batch(CORPORA[name], first + number, size)
        yield resident_bytes()


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize(
    ("batches", "size"),
    [
        (3, 500),
        pytest.param(100, _BATCH, marks=[pytest.mark.long, pytest.mark.timeout(1_800)]),
    ],
)
def test_hostile_payloads_are_events_or_dead_letters(
    name: str, batches: int, size: int
) -> None:
    """One by one and in a batch alike, and the hundredth batch takes no more memory."""
    first = Random().randrange(1 << 32)
    print(f"seeds from {first}")  # noqa: T201
    memory = list(run(name, first, batches, size))
    if batches > 10:
        assert memory[-1] < max(memory[:10]) + 50 * _MEBIBYTE


def main() -> None:
    """Run as many payloads of each format as the argument says."""
    first, batches = Random().randrange(1 << 32), int(sys.argv[1]) // _BATCH
    for name in sys.argv[2:] or CORPORA:
        print(f"{name}: seeds from {first}", flush=True)  # noqa: T201
        began = time.monotonic()
        for number, memory in enumerate(run(name, first, batches, _BATCH)):
            if number % 20 == 0 or number == batches - 1:
                count = (number + 1) * _BATCH
                rate = count / (time.monotonic() - began)
                print(  # noqa: T201
                    f"{name}: {count:,} payloads, {rate:,.0f} a second, "
                    f"{memory // _MEBIBYTE} MiB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
