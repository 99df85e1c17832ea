"""Whatever the bytes, a batch is judged as the strict decoder judges each payload."""

from __future__ import annotations

from unittest import mock

import pyarrow as pa
import pytest

from tallyweir.schemas.formats.avro import column_walk
from tallyweir.schemas.formats.avro.column_decoder import ColumnDecoder
from tallyweir.schemas.formats.avro.tests.decoded_batches import (
    BAD_TEXT,
    KINDS,
    are_events,
    are_strictly_events,
    framed,
    one_field,
    only,
    shortened,
)
from tallyweir.schemas.formats.avro.tests.made_payloads import (
    PayloadMaker,
    encoded_number,
)
from tallyweir.schemas.formats.framing import frame
from tallyweir.schemas.tests.strategies import NESTED_TYPES


def _short_bodies() -> list[bytes]:
    """Bodies of all single bytes, of many pairs, and of the longest numbers."""
    edges = [0, 1, 2, 3, 4, 0x7E, 0x7F, 0x80, 0x81, 0xC3, 0xFE, 0xFF]
    singles = [bytes([one]) for one in range(256)]
    pairs = [one + bytes([other]) for one in singles for other in edges]
    widest = [b"\xff" * size + one for size in (4, 8, 9) for one in singles]
    return [b"", *singles, *pairs, *widest, b"\x80" * 9 + b"\x01", b"\x80" * 4]


@pytest.mark.parametrize("kind", KINDS, ids=shortened)
@pytest.mark.parametrize("is_wanted", [True, False], ids=["wanted", "unwanted"])
def test_every_short_body_is_judged_as_by_the_strict_decoder(
    kind: object, *, is_wanted: bool
) -> None:
    """Numbers too long or too large, indices of nothing, and bytes left over."""
    contract = one_field(kind)
    payloads = framed(contract, *_short_bodies())
    expected = are_strictly_events(only(contract), payloads)
    assert expected == are_events(contract, payloads, *["f"] * is_wanted)


@pytest.mark.parametrize("kind", [*KINDS, *NESTED_TYPES], ids=shortened)
@pytest.mark.parametrize("few_rows", [0, 32])
def test_every_cut_of_a_payload_is_judged_as_by_the_strict_decoder(
    kind: object, few_rows: int
) -> None:
    """A neighbour's bytes never complete a payload."""
    contract = one_field(kind)
    maker = PayloadMaker(1, slips=0)
    whole = [frame(contract.schema_id, maker.make(contract.tree)) for _ in range(5)]
    payloads = [one[:size] for one in whole for size in range(len(one) + 1)]
    expected = are_strictly_events(only(contract), payloads)
    with mock.patch.object(column_walk, "FEW_ROWS", few_rows):
        assert expected == are_events(contract, payloads)
    assert any(expected)
    assert not all(expected)


@pytest.mark.parametrize(
    "kind",
    [["null", "boolean"], {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}],
    ids=str,
)
def test_an_index_of_nothing_is_refused_where_all_are_small(kind: object) -> None:
    """And where one is not, so that they are read in another way."""
    contract = one_field(kind)
    small = [bytes([one, *rest]) for one in range(0, 128, 2) for rest in ([], [1])]
    for bodies in (small, [*small, b"\x84\x00"]):
        payloads = framed(contract, *bodies)
        expected = are_strictly_events(only(contract), payloads)
        assert expected == are_events(contract, payloads)
        assert 1 < expected.count(True) < 6


@pytest.mark.parametrize("wanted", [["f"], []], ids=["wanted", "unwanted"])
def test_text_that_is_none_costs_only_its_own_row(wanted: list[str]) -> None:
    """Among more rows than are searched at once, of which many are not ASCII."""
    contract = one_field("string")
    bodies = [encoded_number(3) + "aé".encode()] * 1_000
    for row in (0, 255, 256, 700, 999):
        bodies[row] = BAD_TEXT
    payloads = framed(contract, *bodies)
    expected = are_strictly_events(only(contract), payloads)
    assert expected.count(False) == 5
    assert expected == are_events(contract, payloads, *wanted)


@pytest.mark.parametrize("wanted", [["f"], []], ids=["wanted", "unwanted"])
def test_a_uuid_is_any_text_that_python_reads_as_one(wanted: list[str]) -> None:
    """Whether all of a batch are of the usual form or none."""
    contract = one_field({"type": "string", "logicalType": "uuid"})
    maker = PayloadMaker(3, slips=0)
    made = [frame(contract.schema_id, maker.make(contract.tree)) for _ in range(300)]
    verdicts = are_strictly_events(only(contract), made)
    assert verdicts.count(False) > 10
    assert verdicts == are_events(contract, made, *wanted)
    usual = [one for one in made if one.count(b"-") == 4 and len(one) == 42]
    assert are_strictly_events(only(contract), usual) == are_events(
        contract, usual, *wanted
    )


@pytest.mark.parametrize("few_rows", [0, 32])
@pytest.mark.parametrize("kind", NESTED_TYPES, ids=shortened)
def test_nested_values_are_walked_as_by_the_strict_decoder(
    kind: object, few_rows: int
) -> None:
    """Round by round, and row by row once few are left."""
    contract = one_field(["null", kind])
    maker = PayloadMaker(5, slips=0.01)
    payloads = [
        frame(contract.schema_id, maker.make(contract.tree)) for _ in range(200)
    ]
    expected = are_strictly_events(only(contract), payloads)
    with mock.patch.object(column_walk, "FEW_ROWS", few_rows):
        assert expected == are_events(contract, payloads)
    assert 100 < expected.count(True) < 200


def test_the_lowest_count_is_that_of_no_block() -> None:
    """It has no opposite in 64 bits."""
    contract = one_field({"type": "array", "items": "int"})
    body = encoded_number(-1 << 63) + encoded_number(0)
    assert [False] * 40 == are_events(contract, framed(contract, *[body] * 40))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "kind",
    [
        "string",
        "bytes",
        {"type": "bytes", "logicalType": "decimal", "precision": 38},
        {"type": "array", "items": "boolean"},
        {"type": "array", "items": {"type": "array", "items": "boolean"}},
    ],
    ids=str,
)
def test_hostile_lengths_and_counts_take_no_time_and_no_memory(kind: object) -> None:
    """Every row of a large batch claims more than any machine has."""
    contract = one_field(kind)
    claims = [1 << 31, 1 << 40, (1 << 63) - 1, -1 << 63, -(1 << 63) + 1]
    bodies = [encoded_number(claim) + b"\x01" * 20 for claim in claims] * 4_000
    assert not any(are_events(contract, framed(contract, *bodies)))


def test_one_payload_of_very_many_items_is_walked_by_itself() -> None:
    """Rounds of one row each would take minutes."""
    inner = encoded_number(1) + b"\x01" + encoded_number(0)
    contract = one_field(
        {"type": "array", "items": {"type": "array", "items": "boolean"}}
    )
    many = encoded_number(60_000) + inner * 60_000 + encoded_number(0)
    few = encoded_number(2) + inner * 2 + encoded_number(0)
    payloads = framed(contract, many, *[few] * 100, many + b"\x00", many[:-1])
    assert [True] * 101 + [False] * 2 == are_events(contract, payloads)


@pytest.mark.parametrize("precision", [1, 18, 19, 20, 38])
def test_a_decimal_may_have_all_its_digits_and_none_more(precision: int) -> None:
    """In any number of bytes, of which those to spare repeat its sign."""
    contract = one_field(
        {"type": "bytes", "logicalType": "decimal", "precision": precision}
    )
    limit = 10**precision
    numbers = [limit - 1, limit, 1 - limit, -limit, 0, -1, 255, -256, 1 << 126]
    numbers += [sign * (1 << 64) + step for sign in (1, -1) for step in (-1, 0, 1)]
    shortest = [(number ^ (number >> 200)).bit_length() // 8 + 1 for number in numbers]
    texts = [
        number.to_bytes(width, signed=True)
        for number, least in zip(numbers, shortest, strict=True)
        for width in sorted({least, 8, 9, 15, 16, 17, 30})
        if width >= least
    ]
    texts += [
        b"",
        b"\x01" + b"\x00" * 16,
        b"\xfe" + b"\xff" * 16,
        b"\x00" + b"\x80" * 16,
        b"\x00" + b"\xff" * 16,
        b"\xff" + b"\x00" * 16,
    ]
    payloads = framed(contract, *(encoded_number(len(one)) + one for one in texts))
    seen = ColumnDecoder(only(contract), ["f"]).decode(pa.array(payloads, pa.binary()))
    fits = [
        one != b"" and abs(int.from_bytes(one, signed=True)) < limit for one in texts
    ]
    assert (
        fits == seen.is_event.tolist() == are_strictly_events(only(contract), payloads)
    )
    assert [
        int.from_bytes(one, signed=True) if fit else None
        for one, fit in zip(texts, fits, strict=True)
    ] == [None if one is None else int(one) for one in seen.columns["f"].to_pylist()]
