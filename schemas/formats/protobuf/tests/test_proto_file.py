"""Files of contracts, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.formats.protobuf.proto_file import compile_source
from tallyweir.schemas.formats.protobuf.tests.proto_contracts import contract_of

_ORDERS = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "parts.proto";
message Order { string id = 1; Part part = 2; google.protobuf.Timestamp at = 3;
  message Line { int32 count = 1; } }
"""
_PARTS = """
syntax = "proto3";
package shop;
message Part { string name = 1; }
"""


_WITH_ANY = """
import "google/protobuf/any.proto";
message N { repeated google.protobuf.Any a = 1; N n = 2; }
message M { N n = 1; int32 b = 2; }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two sources."""
    (tmp_path / "orders.proto").write_text(_ORDERS)
    (tmp_path / "parts.proto").write_text(_PARTS)
    return tmp_path


def test_a_message_is_found_by_its_name_with_or_without_package(folder: Path) -> None:
    """An inner message has its outer one's name in front."""
    orders = [
        load_contract(f"orders.proto#{name}", folder)
        for name in ("Order", "shop.Order")
    ]
    assert orders[0].text == orders[1].text
    assert [one.name for one in orders[0].fields] == ["id", "part", "at"]
    line = load_contract("orders.proto#Order.Line", folder)
    assert [one.name for one in line.fields] == ["count"]
    assert load_contract("orders.proto#Line", folder).text == line.text


def test_the_compiled_file_is_the_same_contract(folder: Path) -> None:
    """Whoever runs it needs no compiler, and repeats are still the same."""
    source = load_contract("orders.proto#Order", folder)
    (folder / "orders.pb").write_bytes(compile_source(folder / "orders.proto"))
    compiled = load_contract("orders.pb#Order", folder)
    assert (compiled.text, compiled.schema_id) == (source.text, source.schema_id)


def test_comments_change_nothing_and_a_field_does(folder: Path) -> None:
    """The contract's identity is what the compiler makes of the file."""
    before = load_contract("orders.proto#Order", folder)
    path = folder / "orders.proto"
    path.write_text(f"// A comment.\n{_ORDERS}")
    assert load_contract("orders.proto#Order", folder).text == before.text
    path.write_text(_ORDERS.replace("string id = 1", "string id = 4"))
    assert load_contract("orders.proto#Order", folder).schema_id != before.schema_id


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("orders.proto#Ordr", "CONTRACT_MESSAGE: .*shop.Order"),
        ("orders.proto#", "names no message.*shop.Order"),
        ("orders.proto", "names no message.*shop.Order"),
        ("other.proto#Order", "CONTRACT_MISSING"),
        ("text.pb#Order", "CONTRACT_MALFORMED"),
    ],
)
def test_a_wrong_reference_says_what_to_write(
    folder: Path, reference: str, expected: str
) -> None:
    """With the names that the file has."""
    (folder / "text.pb").write_text("no descriptor set")
    with pytest.raises(ContractError, match=expected):
        load_contract(reference, folder)


def test_all_that_the_compiler_says_is_told_at_once(folder: Path) -> None:
    """With its lines."""
    (folder / "orders.proto").write_text(
        'syntax = "proto3";\nmessage Order { strng id = 1; int32 a = 2; int32 b = 2; }'
    )
    with pytest.raises(ContractError) as caught:
        load_contract("orders.proto#Order", folder)
    shown = str(caught.value)
    assert '"strng" is not defined' in shown
    assert "orders.proto:2" in shown
    assert len(caught.value.faults) > 1


def test_a_file_that_is_not_beside_is_missing(folder: Path) -> None:
    """Imports start at the folder of the file, and never leave it."""
    (folder / "parts.proto").unlink()
    with pytest.raises(ContractError, match=r"parts.proto: File not found"):
        load_contract("orders.proto#Order", folder)
    (folder / "orders.proto").write_text(
        'syntax = "proto3"; import "../secret.proto"; message Order {}'
    )
    with pytest.raises(ContractError, match="CONTRACT_MALFORMED"):
        load_contract("orders.proto#Order", folder)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("message M {}", "M has 0 fields"),
        (
            _WITH_ANY,
            "M.n holds a google.protobuf.Any",
        ),
        ("message M { int32 aa = 1; int32 aA = 2; }", "the fields aa and aA"),
        (f"message M {{ int32 {'a' * 64} = 1; }}", "a long name"),
    ],
)
def test_a_message_that_is_no_table_is_refused(source: str, expected: str) -> None:
    """Before anything is read."""
    with pytest.raises(ContractError, match=expected):
        contract_of(source)


def test_editions_have_the_features_of_their_files() -> None:
    """What the compiler knows, columns follow."""
    one = contract_of(
        'edition = "2023"; enum E { option features.enum_type = CLOSED; A = 1; }'
        "message M { int32 a = 1; int32 b = 2 [features.field_presence = IMPLICIT];"
        "E c = 3; }"
    )
    assert [field.nullable for field in one.fields] == [True, False, True]
