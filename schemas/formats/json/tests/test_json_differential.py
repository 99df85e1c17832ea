"""Three readers agree on documents of all kinds: one, a batch, and Python's own."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from unittest import mock

import pyarrow as pa
import pytest

from tallyweir.schemas.errors import DecodeError
from tallyweir.schemas.formats.decoded_columns import DecodedEvents
from tallyweir.schemas.formats.json import json_decoder
from tallyweir.schemas.formats.json.json_canonical import canonical
from tallyweir.schemas.formats.json.json_codec import JsonEvent, compile_codec
from tallyweir.schemas.formats.json.json_decoder import JsonDecoder
from tallyweir.schemas.formats.json.json_rows import bounded
from tallyweir.schemas.formats.json.tests.json_contracts import (
    contract_of,
    contracts_of,
)
from tallyweir.schemas.formats.json.tests.json_oracle import (
    oracle,
    read_document,
    same_value,
)
from tallyweir.schemas.formats.json.tests.made_documents import FIELDS, DocumentMaker

_BATCH = 200
_WAYS = ((0.0, 0.0), (0.02, 0.0), (0.0, 0.3), (0.1, 0.1))


def made_batch(seed: int) -> list[bytes | None]:
    """Make payloads: whole ones, with slips, and damaged."""
    source = Random(seed)
    slips, damaged = source.choice(_WAYS)
    maker = DocumentMaker(seed, slips=slips)
    payloads: list[bytes | None] = []
    for _ in range(_BATCH):
        payload = maker.write(maker.make())
        is_damaged = maker.source.random() < damaged
        payloads.append(maker.damage(payload) if is_damaged else payload)
        if source.random() < 0.01:
            payloads.append(source.choice([None, b""]))
    return payloads


def check_batch(seed: int, unknown: str) -> int:
    """Check that all readers agree on a batch; return the number of events."""
    contract = contract_of(FIELDS, unknown)
    codec = compile_codec(contract.text)
    payloads = made_batch(seed)
    events: list[JsonEvent | None] = []
    for payload in payloads:
        try:
            event = codec.read(payload)
        except DecodeError:
            event = None
        events.append(event)
        if unknown == "ignore":
            check_single(payload, event)
    decoder = JsonDecoder(contracts_of(contract), [one.name for one in contract.fields])
    with mock.patch.object(json_decoder, "FEW_ROWS", 1):
        check_columns(decoder.decode(sliced(payloads, seed)), events)
    return sum(one is not None for one in events)


def check_single(payload: bytes | None, event: JsonEvent | None) -> None:
    """Check one document by Python's own reader."""
    expected = oracle(payload)
    assert (event is None) == (expected is None), payload
    if event is None or expected is None:
        return
    record = dict(event.record)
    tags, expected_tags = record.pop("tags"), expected.pop("tags")
    weight, expected_weight = record.pop("weight"), expected.pop("weight")
    assert (None if weight is None else Decimal(str(weight))) == expected_weight
    assert record == expected, payload
    if tags is not None:
        text = f'{{"tags":{tags}}}'.encode()
        document = read_document(text)
        assert document is not None
        assert same_value(document["tags"]) == expected_tags
    form = event.canonical
    assert payload is not None
    whole, again = read_document(payload), read_document(form)
    assert same_value(whole) == same_value(again), payload
    assert canonical(form) == form


def check_columns(decoded: DecodedEvents, events: list[JsonEvent | None]) -> None:
    """Check that a batch's columns hold the records, and nothing else."""
    assert decoded.is_event.tolist() == [one is not None for one in events]
    for name, column in decoded.columns.items():
        column.validate(full=True)
        records = [one and one.record[name] for one in events]
        assert column.to_pylist() == pa.array(records, column.type).to_pylist(), name
    assert decoded.canonical is not None
    assert decoded.canonical.to_pylist() == [one and one.canonical for one in events]
    counts: dict[str, int] = {}
    for name in (name for one in events if one for name in set(one.unnamed)):
        counts[name] = counts.get(name, 0) + 1
    assert decoded.unnamed == bounded(counts)


def sliced(payloads: list[bytes | None], seed: int) -> pa.Array:
    """Lay payloads out as Arrow may: with an offset, and wide or not."""
    kind = pa.large_binary() if seed % 2 else pa.binary()
    return pa.array([b'{"', *payloads, b"x"], kind).slice(1, len(payloads))


@pytest.mark.parametrize("unknown", ["ignore", "rest", "refuse"])
@pytest.mark.parametrize(
    "batches",
    [
        5,
        pytest.param(
            333_400 // _BATCH, marks=[pytest.mark.long, pytest.mark.timeout(1_800)]
        ),
    ],
)
def test_all_readers_agree(unknown: str, batches: int) -> None:
    """On what is an event, on its values, on its canonical form."""
    first = Random().randrange(1 << 32)
    print(f"seeds from {first}")  # noqa: T201
    events = sum(check_batch(first + n, unknown) for n in range(batches))
    assert events > 0
