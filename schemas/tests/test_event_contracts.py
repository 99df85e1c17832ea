"""Several contracts as the columns of one pipeline's events."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from tallyweir.schemas.contract import ContractField, load_contract, versions_of
from tallyweir.schemas.errors import ContractError, IncompatibleContractError
from tallyweir.schemas.event_contracts import EventContracts, load_event_contracts

_AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
_ID = {"name": "event_id", "type": "string"}
_GRADE = {"type": "enum", "name": "Grade", "symbols": ["LOW", "HIGH"]}


def _write(folder: Path, name: str, *fields: object, **more: object) -> str:
    record = name.partition(".")[0].title()
    schema = {"type": "record", "name": record, "fields": list(fields), **more}
    (folder / name).write_text(json.dumps(schema))
    return name


def _load(folder: Path, *references: str) -> EventContracts:
    return load_event_contracts(references, folder)


def _refused(folder: Path, *references: str) -> ContractError:
    with pytest.raises(ContractError) as caught:
        _load(folder, *references)
    assert 78 == caught.value.exit_code
    return caught.value


def test_one_contract_is_what_it_was(tmp_path: Path) -> None:
    """Its fields, in their order, and the versions that it reads."""
    _write(tmp_path, "order.v1.avsc", _ID, _AT)
    newer = {"name": "unit", "type": "string", "default": "mm"}
    name = _write(tmp_path, "order.v2.avsc", _AT, newer, _ID)
    contract = load_contract(name, tmp_path)
    contracts = _load(tmp_path, name)
    assert contract.fields == contracts.fields
    assert versions_of(contract) == contracts.writers
    assert [contract] == [one.contract for one in contracts.each]


def test_columns_are_those_of_all_contracts_in_their_order(tmp_path: Path) -> None:
    """What one of them lacks, or may lack, is nullable; the names of both are told."""
    order = _write(
        tmp_path, "order.v1.avsc", _ID, _AT, {"name": "amount", "type": "int"}
    )
    payment = _write(
        tmp_path,
        "payment.v1.avsc",
        {"name": "order_id", "type": "long"},
        {"name": "amount", "type": ["int", "null"]},
        _AT,
        _ID,
    )
    contracts = _load(tmp_path, order, payment)
    assert (
        ContractField(name="event_id", type="string", nullable=False),
        ContractField(name="at", type="timestamp-micros", nullable=False),
        ContractField(name="amount", type="int", nullable=True),
        ContractField(
            name="order_id", type="long", nullable=True, lacking=("order.v1",)
        ),
    ) == contracts.fields
    reversed_names = [field.name for field in _load(tmp_path, payment, order).fields]
    assert ["order_id", "amount", "at", "event_id"] == reversed_names


def test_the_schema_id_says_which_contract_reads_a_payload(tmp_path: Path) -> None:
    """Of any version of it."""
    _write(tmp_path, "order.v1.avsc", _ID, schema_id=1)
    widened = {"name": "a", "type": "int", "default": 0}
    _write(tmp_path, "order.v2.avsc", _ID, widened, schema_id=2)
    _write(tmp_path, "payment.v1.avsc", _ID, schema_id=3)
    contracts = _load(tmp_path, "payment.v1.avsc", "order.v2.avsc")
    assert {1: "order.v1", 2: "order.v2", 3: "payment.v1"} == {
        schema_id: writer.reference for schema_id, writer in contracts.writers.items()
    }
    assert [("payment.v1", {3}), ("order.v2", {1, 2})] == [
        (one.contract.reference, set(one.writers)) for one in contracts.each
    ]


@pytest.mark.parametrize(
    ("mine", "theirs", "told"),
    [
        ("int", "long", "(int), payment.v1 has a (long)"),
        ("int", ["null", "string"], "(int), payment.v1 has a (string)"),
        (_AT["type"], "long", "(timestamp-micros), payment.v1 has a (long)"),
        (
            _GRADE,
            {**_GRADE, "symbols": ["LOW"]},
            "(enum), payment.v1 has a (enum of other names or parts)",
        ),
        (
            {"type": "array", "items": "int"},
            {"type": "array", "items": "long"},
            "(array), payment.v1 has a (array of other names or parts)",
        ),
    ],
)
def test_a_column_has_one_type(
    tmp_path: Path, mine: object, theirs: object, told: str
) -> None:
    """The error names the field, both contracts and both types."""
    order = _write(tmp_path, "order.v1.avsc", _ID, {"name": "a", "type": mine})
    payment = _write(tmp_path, "payment.v1.avsc", _ID, {"name": "a", "type": theirs})
    error = _refused(tmp_path, order, payment)
    assert "CONTRACTS_DIFFER" == error.code
    assert f"order.v1 has the field a {told}." == error.saw


def test_a_column_has_one_spelling(tmp_path: Path) -> None:
    """To Spark ``Amount`` and ``amount`` are one column."""
    order = _write(tmp_path, "order.v1.avsc", {"name": "amount", "type": "int"})
    payment = _write(tmp_path, "payment.v1.avsc", {"name": "Amount", "type": "int"})
    error = _refused(tmp_path, order, payment)
    assert "CONTRACTS_DIFFER" == error.code
    assert "order.v1 has the field amount (int), payment.v1 has Amount (int)." == (
        error.saw
    )


@pytest.mark.parametrize("type_", [_GRADE, {"type": "array", "items": _GRADE}])
def test_null_and_the_order_of_a_union_make_no_other_type(
    tmp_path: Path, type_: object
) -> None:
    """A column may be null in any case, because one contract may lack it."""
    plain = {"name": "a", "type": type_}
    order = _write(tmp_path, "order.v1.avsc", _ID, plain)
    nullable = {"name": "a", "type": [type_, "null"]}
    payment = _write(tmp_path, "payment.v1.avsc", _ID, nullable)
    visit = _write(tmp_path, "visit.v1.avsc", {"name": "a", "type": ["null", type_]})
    fields = {f.name: f for f in _load(tmp_path, order, payment, visit).fields}
    assert fields["a"].nullable
    assert () == fields["a"].lacking
    assert ("visit.v1",) == fields["event_id"].lacking


def test_two_versions_of_one_contract_are_refused(tmp_path: Path) -> None:
    """The newer one reads the older one's events in any case."""
    _write(tmp_path, "order.v1.avsc", _ID)
    _write(tmp_path, "order.v2.avsc", _ID, {"name": "a", "type": "int", "default": 0})
    error = _refused(tmp_path, "order.v2.avsc", "order.v1.avsc")
    assert "CONTRACT_TWICE" == error.code
    assert "order.v2 and order.v1" in error.saw


def test_ids_differ_over_all_versions_in_all_folders(tmp_path: Path) -> None:
    """An older version of one contract may have the id of another contract."""
    folder = tmp_path / "payments"
    folder.mkdir()
    _write(tmp_path, "order.v1.avsc", _ID, schema_id=5)
    _write(tmp_path, "order.v2.avsc", _ID, _AT | {"default": 0}, schema_id=6)
    _write(folder, "payment.v1.avsc", _ID, schema_id=5)
    error = _refused(tmp_path, "order.v2.avsc", "payments/payment.v1.avsc")
    assert "CONTRACT_ID_TAKEN" == error.code
    assert "order.v1 and payment.v1 both have schema id 5." == error.saw


def test_a_version_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Of the second contract as of the first."""
    order = _write(tmp_path, "order.v1.avsc", _ID)
    _write(tmp_path, "payment.v1.avsc", _ID)
    newer = _write(tmp_path, "payment.v2.avsc", _ID, {"name": "a", "type": "int"})
    assert isinstance(_refused(tmp_path, order, newer), IncompatibleContractError)


def test_contracts_travel_to_tasks(tmp_path: Path) -> None:
    """Pickled, as Spark sends them."""
    order = _write(tmp_path, "order.v1.avsc", _ID)
    payment = _write(tmp_path, "payment.v1.avsc", _ID, _AT)
    contracts = _load(tmp_path, order, payment)
    copy = pickle.loads(pickle.dumps(contracts))
    assert contracts == copy
    assert contracts.writers == copy.writers
