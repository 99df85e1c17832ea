"""What a decoded batch must be: by the strict decoder, and by fastavro's resolution."""

from __future__ import annotations

import io
import json
import math
import uuid
from collections.abc import Sequence

import fastavro
import numpy as np
import pyarrow as pa

from tallyweir.schemas.codec import diagnose
from tallyweir.schemas.contract import Contract
from tallyweir.schemas.event_contracts import EventContract, EventContracts
from tallyweir.schemas.formats.avro.column_decoder import ColumnDecoder
from tallyweir.schemas.formats.avro.tests.made_payloads import encoded_number
from tallyweir.schemas.formats.avro.wire_format import frame, split
from tallyweir.schemas.formats.decoded_columns import DecodedEvents
from tallyweir.schemas.tests.strategies import (
    CHANGES,
    EvolvedContracts,
    contract_of,
)

Payloads = Sequence[bytes | None]

#: The types that a column may have.
KINDS = [written for written, read in CHANGES if written == read]
#: A text that is no UTF-8, with its length.
BAD_TEXT = encoded_number(2) + b"a\xff"


def shortened(kind: object) -> str:
    """How a test's name tells a type."""
    return str(kind)[:60]


def only(contract: Contract) -> EventContracts:
    """The contracts of a pipeline that reads one, of one version."""
    writers = {contract.schema_id: contract}
    return EventContracts((EventContract(contract=contract, writers=writers),))


def one_field(kind: object) -> Contract:
    """A contract of the single field ``f``."""
    return contract_of(
        {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
    )


def framed(contract: Contract, *bodies: bytes) -> list[bytes]:
    """Payloads of a contract."""
    return [frame(contract.schema_id, body) for body in bodies]


def are_events(contract: Contract, payloads: Payloads, *wanted: str) -> list[bool]:
    """Which payloads the decoder takes for events."""
    decoder = ColumnDecoder(only(contract), wanted)
    seen: list[bool] = decoder.decode(pa.array(payloads, pa.binary())).is_event.tolist()
    return seen


def are_strictly_events(contracts: EventContracts, payloads: Payloads) -> list[bool]:
    """Which payloads the strict decoder takes for events."""
    return [diagnose(payload, contracts.writers) is None for payload in payloads]


def resolved(contracts: EventContracts, payload: bytes) -> dict[str, object]:
    """What fastavro reads from an event with the schema of its reader."""
    schema_id, body = split(payload)
    (one,) = (one for one in contracts.each if schema_id in one.writers)
    writer = fastavro.parse_schema(json.loads(one.writers[schema_id].text))
    reader = fastavro.parse_schema(json.loads(one.contract.text))
    found = fastavro.schemaless_reader(io.BytesIO(body), writer, reader)
    assert isinstance(found, dict)
    return found


def is_same(seen: object, expected: object) -> bool:
    """Compare a column's value with the strict decoder's."""
    if isinstance(expected, uuid.UUID):
        return uuid.UUID(str(seen)) == expected
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(seen, float) and math.isnan(seen)
    if isinstance(seen, float) and isinstance(expected, float):
        # Where a float holds less than what was written.
        return seen == expected or seen == float(np.float32(np.int64(expected)))
    return type(seen) is type(expected) and seen == expected


def check(made: EvolvedContracts, payloads: Payloads, seen: DecodedEvents) -> None:
    """Assert that each row is what fastavro and the strict decoder say."""
    contracts = made.contracts
    assert are_strictly_events(contracts, payloads) == seen.is_event.tolist()
    assert made.flat == list(seen.columns)
    for column in seen.columns.values():
        column.validate(full=True)
    values = {name: column.to_pylist() for name, column in seen.columns.items()}
    for row, payload in enumerate(payloads):
        expected: dict[str, object] = dict.fromkeys(made.flat)
        if seen.is_event[row]:
            assert payload is not None
            is_old = split(payload)[0] % 2 == 1
            expected |= resolved(contracts, payload) | (made.added if is_old else {})
        for name in made.flat:
            assert is_same(values[name][row], expected[name]), (name, row)
