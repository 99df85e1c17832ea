"""Which columns documents become: the types hold every value exactly."""

from __future__ import annotations

import pytest

from tallyweir.schemas.codec import decode
from tallyweir.services.look.tests.looked_topics import fields_of, proposed, records

_UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        pytest.param([b'{"n":1}', b'{"n":-7.0}'], "integer", id="small numbers"),
        pytest.param([b'{"n":3000000000}'], "bigint", id="beyond integer"),
        pytest.param([b'{"n":9223372036854775808}'], "numeric(38,0)", id="long"),
        pytest.param([b'{"n":12.50}', b'{"n":0.125}'], "numeric(12,3)", id="money"),
        pytest.param([b'{"n":1234567890.25}'], "numeric(16,2)", id="much money"),
        pytest.param([b'{"n":0.1234567}'], "double precision", id="measured"),
        pytest.param(
            [b'{"n":0.12345678901234567890}'], "numeric(38,19)", id="long fraction"
        ),
        pytest.param([b'{"n":1e300}'], "double precision", id="huge"),
        pytest.param([b'{"n":1e400}'], "jsonb", id="beyond all"),
        pytest.param([b'{"n":true}', b'{"n":null}'], "boolean", id="booleans"),
        pytest.param([b'{"n":"a"}', b'{"n":""}'], "text", id="texts"),
        pytest.param([{"n": _UUID}], "uuid", id="UUIDs"),
        pytest.param([{"n": _UUID.upper()}], "text", id="UUIDs in capitals"),
        pytest.param([{"n": "2026-11-26"}], "date", id="dates"),
        pytest.param([{"n": "2026-11-26T10:00:00Z"}], "timestamptz", id="moments"),
        pytest.param(
            [{"n": "2026-11-26T10:00:00.123456789+01:00"}],
            "timestamptz truncated",
            id="nanoseconds",
        ),
        pytest.param([{"n": "2026-11-26T10:00:00"}], "timestamp", id="local times"),
        pytest.param(
            [{"n": "2026-11-26T10:00:00Z"}, {"n": "soon"}], "text", id="some moments"
        ),
        pytest.param([b'{"n":[1]}'], "jsonb", id="arrays"),
        pytest.param([b'{"n":1}', b'{"n":"1"}'], "jsonb", id="mixed"),
        pytest.param([b'{"n":null}'], "jsonb", id="always null"),
        pytest.param([b'{"n":{}}'], "jsonb", id="empty objects"),
    ],
)
def test_a_type_holds_all_values(documents: list[object], expected: str) -> None:
    """The narrowest that leaves room, and jsonb where no other is exact."""
    assert {"n": expected} == fields_of(*documents)
    proposal = proposed(records(documents))
    contract = proposal.load_contract()
    for one in records(documents):
        decode(one.value, {contract.schema_id: contract})


def test_an_id_is_a_bigint_even_if_small() -> None:
    """IDs grow."""
    assert {"customerId": "bigint", "count": "integer"} == fields_of(
        {"customerId": 1, "count": 1}
    )


def test_objects_become_columns_of_their_fields() -> None:
    """Unless they are sometimes something else."""
    documents = [{"a": {"b": {"c": 1}, "d": "x"}, "e": {"f": 1}}, {"e": [1]}]
    assert {"a.b.c": "integer", "a.d": "text", "e": "jsonb"} == fields_of(*documents)


def test_an_object_whose_names_are_values_is_one_column() -> None:
    """A map of thousands of keys is no table of thousands of columns."""
    documents = [{"by_user": {f"u{number}": 1}} for number in range(100)]
    assert {"by_user": "jsonb"} == fields_of(*documents)


def test_names_that_are_no_columns_get_one() -> None:
    """What a path cannot hold stays in the rest."""
    proposal = proposed(
        records(
            [
                {
                    "geo.point": 1,
                    "user agent": "x",
                    "a": {"b": 1},
                    "a_b": 2,
                    "kafka_offset": 1,
                    "rest": 1,
                    'quo"ted': 1,
                    "": 1,
                    "größe": 1,
                    "1st": 1,
                }
            ]
        )
    )
    assert {
        '"geo.point"': "integer as geo_point",
        "user agent": "text as user_agent",
        "a.b": "integer",
        "a_b": "integer as a_b_",
        "kafka_offset": "integer as kafka_offset_",
        "rest": "integer as rest_",
        "größe": "integer as gr_e",
        "1st": "integer as _1st",
    } == proposal.declared
    proposal.load_contract()
