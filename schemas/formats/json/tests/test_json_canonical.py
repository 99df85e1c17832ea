"""Documents of one meaning have one canonical form; others have others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest

from tallyweir.schemas.formats.json.json_canonical import canonical
from tallyweir.schemas.formats.json.json_decoder import JsonDecoder
from tallyweir.schemas.formats.json.tests.json_contracts import (
    contract_of,
    contracts_of,
)
from tallyweir.schemas.formats.json.tests.json_oracle import read_document, same_value
from tallyweir.schemas.formats.json.tests.made_documents import DocumentMaker

_BATCH = 500


@pytest.mark.parametrize(
    ("token", "form"),
    [
        ("1", "1"),
        ("1.0", "1"),
        ("10e-1", "1"),
        ("0.1E+1", "1"),
        ("-0", "0"),
        ("0e5", "0"),
        ("-12.50", "-12.5"),
        ("1500", "1500"),
        ("15e2", "1500"),
        ("0.00100", "0.001"),
        ("1e-3", "0.001"),
        ("9" * 39 + "0", "9" * 39 + "0"),
        ("4e40", "4e40"),
        ("40000e36", "4e40"),
        ("125e-43", "1.25e-41"),
        ("1e-40", "0." + "0" * 39 + "1"),
        ("12345678901234567890.123456789", "12345678901234567890.123456789"),
    ],
)
def test_a_number_has_one_form(token: str, form: str) -> None:
    """It has all digits that count, and no others."""
    assert canonical(f'{{"a":{token}}}'.encode()) == f'{{"a":{form}}}'.encode()


def test_names_ascend_and_texts_escape_little() -> None:
    """By code points; only what JSON must escape is escaped."""
    payload = (
        r'{ "\uffff":1, "\ud83d\udcca":2, "b":"\u002f\u0022\u007f\u001f\n", "B":{} }'
    )
    expected = '{"B":{},"b":"/\\"\x7f\\u001f\\n","\uffff":1,"\U0001f4ca":2}'
    assert canonical(payload.encode()) == expected.encode()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{}", '{"a":null}'),
        ('{"a":1}', '{"a":"1"}'),
        ('{"a":[1,2]}', '{"a":[2,1]}'),
        ('{"a":{}}', '{"a":[]}'),
        ('{"a":0.1}', '{"a":0.1000000000000000055}'),
        ('{"a":"e\u0301"}', '{"a":"\u00e9"}'),
        ('{"a":{"b":1},"c":2}', '{"a":{"b":1,"c":2}}'),
    ],
)
def test_documents_that_differ_have_different_forms(one: str, other: str) -> None:
    """Also where a field's value is the same."""
    assert canonical(one.encode()) != canonical(other.encode())


def test_documents_of_one_layout_may_differ_in_spaces_and_in_forms() -> None:
    """What stands before a value is copied with it only if it does in all of them."""
    layouts = [
        b'{"b":1,"a":"x","c":2}',
        b'{"b":1,"a": "x","c":2}',
        b'{"b":1.0,"a":"x","c":2}',
        b'{"b":1,"a":"x","\\u0063":2}',
        b'{"a":"x","b":1,"c":2}',
        b'{"b":1,"a":"x"}',
    ]
    decoder = JsonDecoder(contracts_of(contract_of({"b": "bigint"})), [])
    for odd in layouts:
        payloads = [layouts[0]] * 20 + [odd] + [layouts[0]] * 20
        made = decoder.decode(pa.array(payloads, pa.binary())).canonical
        assert made is not None
        assert made.to_pylist() == [canonical(one) for one in payloads], odd


def pairs(maker: DocumentMaker) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Make documents: one, another way to write it, and one that differs."""
    while True:
        value = maker.make()
        first, again = maker.write(value), maker.write(maker.repeat(value))
        changed = maker.damage(first)
        other = read_document(changed)
        before = read_document(first)
        if other is not None and same_value(other) != same_value(before):
            yield first, again, changed
        else:
            yield first, again, maker.write({**value, "another": maker.source.random()})


def check_pairs(seed: int, count: int) -> None:
    """Check the canonical forms of pairs, one by one and in a batch."""
    maker = DocumentMaker(seed, slips=0.0)
    source = pairs(maker)
    found = [next(source) for _ in range(count)]
    contract = contract_of({"no_such_field": "text"})
    decoder = JsonDecoder(contracts_of(contract), [])
    forms = []
    for column in zip(*found, strict=True):
        made = decoder.decode(pa.array(column, pa.binary())).canonical
        assert made is not None
        forms.append(made.to_pylist())
        assert forms[-1] == [canonical(one) for one in column]
    for (first, again, changed), one, same, other in zip(found, *forms, strict=True):
        assert one == same, (first, again)
        assert one != other, (first, changed)
        assert json.loads(one) is not None


@pytest.mark.parametrize(
    "batches",
    [
        2,
        pytest.param(
            100_000 // _BATCH, marks=[pytest.mark.long, pytest.mark.timeout(1_800)]
        ),
    ],
)
def test_repeats_are_equal_and_changes_are_not(batches: int) -> None:
    """Whatever the order, the spaces, the escapes and the form of the numbers."""
    first = Random().randrange(1 << 32)
    print(f"seeds from {first}")  # noqa: T201
    for number in range(batches):
        check_pairs(first + number, _BATCH)
