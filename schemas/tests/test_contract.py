"""Contracts are found by name or path, and know which versions they read."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from tallyweir.schemas.contract import (
    CONTRACT_BYTES_MAX,
    ContractField,
    load_contract,
    versions_of,
)
from tallyweir.schemas.errors import ContractError, IncompatibleContractError
from tallyweir.schemas.formats.format import SCHEMA_ID_MAX

SCHEMA: dict[str, object] = {
    "type": "record",
    "name": "Click",
    "fields": [{"name": "id", "type": "string"}],
}


def write(folder: Path, name: str, *fields: object, **more: object) -> Path:
    """Write a contract of a record of fields."""
    path = folder / name
    schema = {**SCHEMA, "fields": list(fields) or SCHEMA["fields"], **more}
    path.write_text(json.dumps(schema))
    return path


def code_of(reference: str, beside: Path | None = None) -> str:
    """The code of the error that loading gives."""
    with pytest.raises(ContractError) as caught:
        load_contract(reference, beside)
    assert caught.value.exit_code == 78
    return caught.value.code


def test_the_shipped_contracts_keep_their_ids() -> None:
    """A published file never changes: its id lies in every topic."""
    ids = {
        name: load_contract(name).schema_id
        for name in ("flight_departure.v1", "page_view.v1")
    }
    assert ids == {"flight_departure.v1": 74426637, "page_view.v1": 1495240972}


def test_a_contract_tells_its_columns() -> None:
    """Pipelines are checked against these before anything starts."""
    contract = load_contract("flight_departure.v1")
    assert contract.reference == "flight_departure.v1"
    fields = {field.name: field for field in contract.fields}
    assert fields["scheduled_at"] == ContractField(
        name="scheduled_at", type="timestamp-micros", nullable=False
    )
    assert fields["dep_delay_minutes"] == ContractField(
        name="dep_delay_minutes", type="int", nullable=True
    )
    assert len(fields) == 11


def test_a_path_starts_at_the_pipeline_file_or_its_folder(tmp_path: Path) -> None:
    """Both forms find the same contract."""
    write(tmp_path, "click.v2.avsc")
    pipeline = tmp_path / "clicks.yaml"
    pipeline.touch()
    of_folder = load_contract("click.v2.avsc", tmp_path)
    assert of_folder == load_contract("click.v2.avsc", pipeline)
    assert (of_folder.name, of_folder.version) == ("click", 2)


def test_a_file_without_a_version_is_version_one(tmp_path: Path) -> None:
    """A first own contract needs no thought about versions."""
    write(tmp_path, "click.avsc")
    assert load_contract("click.avsc", tmp_path).reference == "click.v1"


def test_an_id_given_in_the_file_wins(tmp_path: Path) -> None:
    """A registry outside has already told producers its id."""
    write(tmp_path, "click.v1.avsc", schema_id=SCHEMA_ID_MAX)
    contract = load_contract("click.v1.avsc", tmp_path)
    assert contract.schema_id == SCHEMA_ID_MAX
    assert "schema_id" not in contract.text


def test_an_id_depends_on_the_schema_and_not_on_its_spelling(tmp_path: Path) -> None:
    """Another order of keys or other whitespace is the same contract."""
    (tmp_path / "a.avsc").write_text(json.dumps(SCHEMA, indent=4))
    (tmp_path / "other").mkdir()
    turned = dict(reversed(SCHEMA.items()))
    (tmp_path / "other" / "a.avsc").write_text(json.dumps(turned))
    first = load_contract("a.avsc", tmp_path)
    assert first.schema_id == load_contract("a.avsc", tmp_path / "other").schema_id
    assert 1 <= first.schema_id <= SCHEMA_ID_MAX


def test_two_contracts_with_one_id_are_an_error(tmp_path: Path) -> None:
    """A payload could not say which of them wrote it."""
    write(tmp_path, "click.v1.avsc")
    write(tmp_path, "tap.v1.avsc")
    assert code_of("click.v1.avsc", tmp_path) == "CONTRACT_ID_TAKEN"


@pytest.mark.parametrize("declared", [0, -1, 1 << 31, True, "7", 1.5])
def test_an_id_that_cannot_travel_is_an_error(tmp_path: Path, declared: object) -> None:
    """The frame has four bytes for it, read as a signed number."""
    write(tmp_path, "click.v1.avsc", schema_id=declared)
    assert code_of("click.v1.avsc", tmp_path) == "CONTRACT_SCHEMA_ID"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"{", "CONTRACT_MALFORMED"),
        (b"\xff", "CONTRACT_MALFORMED"),
        (b"[]", "CONTRACT_MALFORMED"),
        (b"[" * 100_000, "CONTRACT_MALFORMED"),
        (b'{"type":' * 20_000 + b"1" + b"}" * 20_000, "CONTRACT_MALFORMED"),
        (b"1" * 5_000, "CONTRACT_MALFORMED"),
        (b" " * (CONTRACT_BYTES_MAX + 1), "CONTRACT_MALFORMED"),
    ],
)
def test_a_file_that_is_no_schema_is_an_error(
    tmp_path: Path, content: bytes, code: str
) -> None:
    """Hostile JSON ends in one clear error, not in a traceback."""
    (tmp_path / "click.v1.avsc").write_bytes(content)
    assert code_of("click.v1.avsc", tmp_path) == code


def test_a_missing_contract_names_the_nearest_known_one() -> None:
    """A typo in the pipeline file is corrected by reading the error."""
    with pytest.raises(ContractError, match=r"Write page_view\.v1"):
        load_contract("page_veiw.v1")
    assert code_of("nothing.avsc") == "CONTRACT_MISSING"
    assert code_of("../avro/page_view.v1") == "CONTRACT_MISSING"


def test_a_file_name_that_gives_no_name_is_an_error(tmp_path: Path) -> None:
    """Name and version come from the file's name."""
    write(tmp_path, "1 click.avsc")
    assert code_of("1 click.avsc", tmp_path) == "CONTRACT_FILE_NAME"


def test_a_reader_finds_the_versions_it_can_read(tmp_path: Path) -> None:
    """Readable neighbours by id; a newer unreadable one is left out."""
    write(tmp_path, "click.v1.avsc")
    added = {"name": "page", "type": ["null", "string"], "default": None}
    write(tmp_path, "click.v2.avsc", {"name": "id", "type": "string"}, added)
    write(tmp_path, "click.v3.avsc", {"name": "id", "type": ["null", "string"]})
    write(tmp_path, "tap.v1.avsc", {"name": "x", "type": "int"})
    reader = load_contract("click.v2.avsc", tmp_path)
    found = versions_of(reader)
    assert [contract.reference for contract in found.values()] == [
        "click.v2",
        "click.v1",
    ]
    assert all(contract.schema_id == key for key, contract in found.items())


def test_an_unreadable_older_version_stops_the_start(tmp_path: Path) -> None:
    """Its events may still lie in the topic; the error shows the difference."""
    write(tmp_path, "click.v1.avsc")
    write(tmp_path, "click.v2.avsc", {"name": "ident", "type": "string"})
    reader = load_contract("click.v2.avsc", tmp_path)
    with pytest.raises(
        IncompatibleContractError, match="ident is not written and has no default"
    ):
        versions_of(reader)


def test_a_contract_and_its_errors_survive_pickling() -> None:
    """Both travel between Spark's processes."""
    contract = load_contract("page_view.v1")
    assert pickle.loads(pickle.dumps(contract)) == contract
    with pytest.raises(ContractError) as caught:
        load_contract("nothing")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.fix) == (str(caught.value), caught.value.fix)


@pytest.mark.parametrize(
    "reference", ["a" * 5_000, "a" * 5_000 + "/c.v1.avsc", "a\0b", "a\0b/c.v1.avsc"]
)
def test_a_name_that_no_file_can_have_is_a_missing_contract(reference: str) -> None:
    """The operating system refuses it in a way of its own."""
    assert code_of(reference) == "CONTRACT_MISSING"


def test_all_that_is_wrong_with_a_contract_is_one_error(tmp_path: Path) -> None:
    """The file's name, its id and its fields."""
    write(tmp_path, "click-.v0.avsc", {"name": "a-b", "type": "int"}, schema_id="x")
    with pytest.raises(ContractError) as caught:
        load_contract("click-.v0.avsc", tmp_path)
    assert [one.code for one in caught.value.faults] == [
        "CONTRACT_FILE_NAME",
        "CONTRACT_SCHEMA_ID",
        "CONTRACT_FIELD_NAME",
    ]


def test_all_versions_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    """Not one after the other."""
    write(tmp_path, "click.v1.avsc", {"name": "id", "type": "int"})
    write(tmp_path, "click.v2.avsc", {"name": "id", "type": "money"})
    write(tmp_path, "click.v3.avsc", {"name": "id", "type": "string"})
    with pytest.raises(ContractError) as caught:
        versions_of(load_contract("click.v3.avsc", tmp_path))
    assert [one.code for one in caught.value.faults] == [
        "CONTRACT_INCOMPATIBLE",
        "CONTRACT_MALFORMED",
    ]
