"""Changes of Debezium: which records are events, and what they hold."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from tallyweir.schemas.contract import Contract, DeclaredFields, load_contract
from tallyweir.schemas.errors import ContractError, EncodeError
from tallyweir.schemas.formats.json.json_format import Json
from tallyweir.schemas.formats.json.tests.json_contracts import (
    contracts_of,
    decode,
    fault_of,
)

_FIELDS = {
    "row.id": "bigint",
    "row.price": "numeric(10,2) from base64",
    "before.price": "numeric(10,2) from base64 as former_price",
    "op": "text not null",
    "source.lsn": "bigint",
}
_SOURCE = {"lsn": 7, "table": "orders", "ts_ms": 5}
_OLD, _NEW = {"id": 1, "price": "AMg="}, {"id": 1, "price": "ASw=", "note": "x"}


def _contract(unknown: str = "ignore", **fields: str) -> Contract:
    declared = DeclaredFields(
        fields=fields or _FIELDS, unknown=unknown, envelope="debezium"
    )
    return load_contract(declared.reference)


def _change(
    op: str, before: object, after: object, **more: object
) -> dict[str, object]:
    return {
        "before": before,
        "after": after,
        "source": _SOURCE,
        "op": op,
        "ts_ms": 1,
        "transaction": None,
        **more,
    }


def _written(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("has_schema", [False, True])
@pytest.mark.parametrize(
    ("change", "row", "former"),
    [
        (_change("c", None, _NEW), Decimal(3), None),
        (_change("r", None, _NEW), Decimal(3), None),
        (_change("u", _OLD, _NEW), Decimal(3), Decimal(2)),
        (_change("d", _OLD, None), Decimal(2), Decimal(2)),
    ],
)
def test_the_row_is_that_after_a_change_and_that_before_a_deletion(
    change: dict[str, object],
    row: Decimal,
    former: Decimal | None,
    *,
    has_schema: bool,
) -> None:
    """With the schema part of Kafka Connect's converter, and without it."""
    payload = (
        {"schema": {"type": "struct"}, "payload": change} if has_schema else change
    )
    assert decode(_contract(), _written(payload)) == {
        "id": 1,
        "price": row,
        "former_price": former,
        "op": change["op"],
        "source_lsn": 7,
    }


@pytest.mark.parametrize("op", ["t", "m"])
def test_a_truncation_and_a_message_have_no_row(op: str) -> None:
    """They are events as well: a log of changes has them."""
    found = decode(_contract(), _written(_change(op, None, None)))
    assert (found["id"], found["op"]) == (None, op)
    required = _contract(**{"row.id": "bigint not null"})
    fault = fault_of(required, _written(_change(op, None, None)))
    assert str(fault) == "MISSING_FIELD: field row.id: missing or null"


def test_what_is_no_change_is_known_for_what_it_is() -> None:
    """So none of these becomes a dead letter; anything else does."""
    transaction = {"status": "BEGIN", "id": "7:9", "event_count": None, "ts_ms": 1}
    payloads = [
        None,
        _written({"schema": None, "payload": None}),
        _written({"ts_ms": 1}),
        _written({"schema": {}, "payload": {"ts_ms": 1}}),
        _written(transaction),
        _written({"source": _SOURCE, "ddl": "CREATE TABLE t ()", "tableChanges": []}),
        _written(_change("c", None, _NEW)),
        _written({"id": 1}),
        b"",
        b"{",
    ]
    contract = _contract()
    decoder = Json().decoder(contracts_of(contract), ["id"])
    # More rows than are read one at a time.
    decoded = decoder.decode(pa.array(payloads * 3, pa.binary()))
    assert [decoded.skipped.get(row) for row in range(10)] == [
        *("tombstone", "tombstone", "heartbeat", "heartbeat", "transaction"),
        *("schema change", None, None, None, None),
    ]
    assert decoded.skipped[25] == "schema change"
    assert decoded.is_event.tolist() == [*[False] * 6, True, *[False] * 3] * 3
    assert decoded.columns["id"].to_pylist()[:10] == [*[None] * 6, 1, *[None] * 3]


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"id": 1}, "MISSING_FIELD: field op: missing or null"),
        (
            _change("x", None, _NEW),
            'WRONG_TYPE: field op: expected one of c, r, u, d, t, m, got "x"',
        ),
        (_change("c", _OLD, None), "MISSING_FIELD: field after: missing or null"),
        (
            _change("u", None, [1]),
            "WRONG_TYPE: field after: expected an object, got an array",
        ),
        (
            {"schema": 1, "payload": 2},
            "WRONG_TYPE: field payload: expected an object, got 2",
        ),
        (
            _change("c", None, {"id": "a"}),
            'WRONG_TYPE: field row.id: expected bigint, got "a"',
        ),
    ],
)
def test_what_is_no_change_of_debezium_is_a_dead_letter(
    change: object, detail: str
) -> None:
    """The error names the field."""
    assert str(fault_of(_contract(), _written(change))) == detail


def test_a_change_that_a_restarted_connector_sends_again_is_the_same() -> None:
    """Its clocks differ, and so does the number of its transaction."""
    again = _change("u", _OLD, _NEW, ts_ms=99, transaction={"id": "8:1"})
    again["source"] = {**_SOURCE, "ts_ms": 98, "sequence": '["6","7"]'}
    other = _change("u", _OLD, {**_NEW, "price": "AMg="})
    payloads = [
        _written(_change("u", _OLD, _NEW)),
        _written({"schema": {}, "payload": again}),
        _written(other),
    ]
    decoder = Json().decoder(contracts_of(_contract()), [])
    canonical = decoder.decode(pa.array(payloads)).canonical
    assert canonical is not None
    first, repeat, changed = canonical.to_pylist()
    assert first == repeat != changed


def test_only_fields_of_the_row_count_as_not_named() -> None:
    """The envelope's own are known."""
    decoder = Json().decoder(contracts_of(_contract("rest")), ["rest"])
    decoded = decoder.decode(pa.array([_written(_change("u", _OLD, _NEW))]))
    assert decoded.unnamed == {"row.note": 1}
    assert decoded.columns["rest"].to_pylist() == ['{"note":"x"}']
    fault = fault_of(_contract("refuse"), _written(_change("u", _OLD, _NEW)))
    assert str(fault) == "UNKNOWN_FIELD: field row.note: the contract does not name it"


def test_what_is_written_is_read_back() -> None:
    """A record without an operation is a creation."""
    contract = _contract("rest")
    record: dict[str, object] = {
        "id": 1,
        "price": Decimal("-3.00"),
        "former_price": None,
        "op": "d",
        "source_lsn": 9,
        "rest": '{"a":[1]}',
    }
    deleted = {**record, "former_price": Decimal("-3.00")}
    assert decode(contract, Json().encode(contract, deleted)) == deleted
    created = {**record, "op": "c"}
    assert decode(contract, Json().encode(contract, created)) == created
    with pytest.raises(EncodeError, match=r"op is .* which has no row"):
        Json().encode(contract, {**record, "op": "t"})
    with pytest.raises(EncodeError, match="price is another in before"):
        Json().encode(contract, {**deleted, "former_price": Decimal(1)})


def test_a_path_begins_with_a_member_of_a_change() -> None:
    """Otherwise a column would be null in every row."""
    with pytest.raises(ContractError, match=r"Field id begins with id.*row\.id"):
        _contract(id="bigint", op="text")


def test_a_change_with_a_wrong_value_is_shown_as_far_as_it_goes() -> None:
    """For dead letters."""
    contract = _contract()
    payload = _written(_change("c", None, {"id": 1, "price": "no base64"}))
    begun = Json().read_begun(payload, contract)
    assert [one.value for one in begun.fields] == [1]
    assert begun.failed_at == 0
    assert Json().read_begun(payload, contract, until="id").failed_at is None
