"""JSON that two programs could read differently is refused, whatever it costs."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyweir.services.ingest.event_forms import (
    DEPTH_MAX,
    DIGITS_MAX,
    ELEMENTS_MAX,
    parse_json,
)
from tallyweir.services.process.refusals import RefusedError

MALFORMED = {
    "nothing": b"",
    "no UTF-8": b'"\xff"',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "duplicate key": b'{"a": 1, "b": {"c": 1, "c": 2}}',
    "NaN": b'{"a": NaN}',
    "Infinity": b"[-Infinity]",
    "a number beyond doubles": b'{"a": 1e400}',
    "a negative one": b'{"a": -1e400}',
    "5,000 digits": b'{"a": ' + b"9" * 5_000 + b"}",
    "one digit too many": b"9" * (DIGITS_MAX + 1),
    "half a surrogate pair": rb'{"a": "\ud800"}',
    "half a pair as a key": rb'{"\udc00": 1}',
    "an escaped NUL": rb'{"a": ["x\u0000y"]}',
    "a NUL": b'{"a": "\x00"}',
    "a line break in a text": b'"\n"',
    "a trailing comma": b"[1,]",
    "two values": b"{} {}",
    "single quotes": b"{'a': 1}",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_clean_json_is_refused(body: bytes) -> None:
    """One code, status 400, and not a word of the parser's internals."""
    with pytest.raises(RefusedError) as caught:
        parse_json(body)
    assert (caught.value.code, caught.value.status) == ("JSON_MALFORMED", 400)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
        b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1),
        b"[" * 100_000 + b"]" * 100_000,
        b"[" + b"1," * ELEMENTS_MAX + b"1]",
        b"[" + b"[]," * ELEMENTS_MAX + b"[]]",
    ],
    ids=["one array too deep", "one object too deep", "100,000 deep", "wide", "both"],
)
def test_what_is_too_deep_or_too_wide_is_refused(body: bytes) -> None:
    """Without a crash, and without reading for long."""
    with pytest.raises(RefusedError) as caught:
        parse_json(body)
    assert (caught.value.code, caught.value.status) == ("JSON_TOO_COMPLEX", 400)


def test_the_largest_that_is_allowed_is_read() -> None:
    """The limits are inclusive."""
    depth = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    value = parse_json(depth)
    assert json.dumps(value).encode() == depth
    assert parse_json(b"[" + b"1," * (ELEMENTS_MAX - 2) + b"1]") == [1] * (
        ELEMENTS_MAX - 1
    )
    assert parse_json(b"9" * DIGITS_MAX) == int("9" * DIGITS_MAX)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**39), 10**39)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
).filter(lambda value: "\\u0000" not in json.dumps(value))


@given(value=json_values)
def test_clean_json_means_what_it_meant(value: object) -> None:
    """However it is escaped."""
    try:
        as_utf8 = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    assert parse_json(json.dumps(value).encode()) == value
    assert parse_json(as_utf8) == value


@given(
    body=st.binary(max_size=50)
    | st.text(max_size=50).map(lambda t: t.encode("utf-8", "surrogatepass"))
)
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    """No other error, whatever comes."""
    with suppress(RefusedError):
        parse_json(body)
