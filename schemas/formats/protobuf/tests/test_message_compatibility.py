"""A message type reads another one's payloads only if every value stays the same."""

from __future__ import annotations

from random import Random

import pytest
from google.protobuf import descriptor_pb2 as pb
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor

from tallyweir.schemas.contract import Contract
from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.formats.protobuf.message_compatibility import find_differences
from tallyweir.schemas.formats.protobuf.message_fields import JSON_NODE, node_of
from tallyweir.schemas.formats.protobuf.proto_file import message_of
from tallyweir.schemas.formats.protobuf.protobuf_codec import compile_codec
from tallyweir.schemas.formats.protobuf.tests.made_messages import (
    made_contract,
    made_message,
)
from tallyweir.schemas.formats.protobuf.tests.proto_contracts import (
    contract_of,
    contract_of_set,
)
from tallyweir.schemas.formats.protobuf.tests.test_protobuf_differential import (
    official,
    same,
)
from tallyweir.schemas.schema_tree import item_of

_OLD = 'syntax = "proto2";\n'
_G = "google.protobuf."
_TYPES = """
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
message N { int32 key = 1; int32 value = 2; enum E { ZERO = 0; ONE = 1; } }
message O { string key = 1; int32 value = 2; enum E { ZERO = 0; OTHER = 1; } }
message P { int64 value = 1; }
"""


def _found(reader: str, writer: str) -> list[str]:
    read, written = (message_of(contract_of(one).text) for one in (reader, writer))
    return find_differences(read, written)


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("string a = 1;", "string b = 1; int32 c = 2;"),
        ("string a = 1; int32 b = 2;", "string a = 1;"),
        ("int64 a = 1;", "int32 a = 1;"),
        ("int64 a = 1;", "uint32 a = 1;"),
        ("repeated sint64 a = 1;", "repeated sint32 a = 1;"),
        ("map<int64, int64> a = 1;", "map<int32, int32> a = 1;"),
        ("Q a = 1; message Q { M a = 1; }", "M a = 1;"),
        ("E a = 1; enum E { A = 0; }", "E a = 1; enum E { A = 0; B = 1; }"),
        ("optional int32 a = 1;", "oneof c { int32 a = 1; }"),
        ("oneof c { int32 a = 1; int32 b = 2; }", "oneof d { int32 b = 2; }"),
    ],
)
def test_what_keeps_every_value_is_read(reader: str, writer: str) -> None:
    """Types widen, fields come and go, and names do not matter."""
    read, written = (f"{_TYPES} message M {{ {one} }}" for one in (reader, writer))
    assert [] == _found(read, written)


@pytest.mark.parametrize(
    ("reader", "writer", "seen"),
    [
        ("int32 a = 1;", "int64 a = 1;", "a is written as int64 and read as int32"),
        ("uint64 a = 1;", "int32 a = 1;", "written as int32"),
        ("sint32 a = 1;", "int32 a = 1;", "written as int32"),
        ("int32 a = 1;", "bool a = 1;", "written as bool"),
        ("string a = 1;", "bytes a = 1;", "written as bytes"),
        ("string a = 1;", "repeated string a = 1;", "written as repeated"),
        ("map<int32, int32> a = 1;", "repeated N a = 1;", "read as a map"),
        ("optional int32 a = 1;", "int32 a = 1;", "when it is absent"),
        ("int32 a = 1;", "optional int32 a = 1;", "when it is absent"),
        ("N a = 1;", "O a = 1;", "a.key is written as string"),
        ("repeated N a = 1;", "repeated O a = 1;", "a.key is written as string"),
        ("N.E a = 1;", "O.E a = 1;", "a is written as OTHER and read as ONE"),
        ("oneof c { N a = 1; N b = 2; }", "N a = 1; N b = 2;", "a, b do not exclude"),
        ("oneof c { N a = 1; N b = 2; }", "oneof c { N a = 1; } N b = 2;", "a, b do"),
        (f"{_G}Timestamp a = 1;", f"{_G}Duration a = 1;", f"written as {_G}Duration"),
        (f"{_G}Int64Value a = 1;", "P a = 1;", "written as P"),
    ],
)
def test_what_could_change_a_value_is_told(reader: str, writer: str, seen: str) -> None:
    """An absent value would become a default, or a number another name."""
    read, written = (f"{_TYPES} message M {{ {one} }}" for one in (reader, writer))
    found = _found(read, written)
    assert any(seen in one for one in found), found


def test_defaults_and_required_fields_of_proto2_are_compared() -> None:
    """An absent field has the reader's default, and one that must be there is."""
    seven, eight = (
        f"{_OLD}message M {{ optional int32 a = 1 [default = {n}]; }}" for n in (7, 8)
    )
    assert _found(seven, eight)
    assert [] == _found(seven, seven)
    plain = "message M { int32 a = 1; }"
    assert [] == _found(plain, f"{_OLD}message M {{ required int32 a = 1; }}")
    needed = f"{_OLD}message M {{ required int32 a = 1; optional int32 b = 2; }}"
    assert ["a is required and not written"] == _found(
        needed, f"{_OLD}message M {{ optional int32 b = 2; }}"
    )
    assert _found(needed, f"{_OLD}message M {{ optional int32 a = 1; }}")


def _changed(source: Random, contract: Contract) -> Contract:
    """Change a type somewhere, as a new version would, rightly or wrongly."""
    message = message_of(contract.text)
    file = pb.FileDescriptorProto()
    message.file.CopyToProto(file)
    (own,) = (one for one in file.message_type if one.name == "M")
    field = source.choice(own.field)
    match source.randrange(6):
        case 0 if len(own.field) > 1 and not field.HasField("oneof_index"):
            own.field.remove(field)
        case 1:
            field.type = source.choice([field.TYPE_INT64, field.TYPE_UINT64])
            field.ClearField("type_name")
            field.ClearField("default_value")
        case 2 if field.label != field.LABEL_REPEATED:
            field.label = field.LABEL_REPEATED
            field.ClearField("default_value")
        case 3 if file.syntax == "proto2" and field.label == field.LABEL_OPTIONAL:
            if field.type == field.TYPE_INT32:
                field.default_value = "9"
        case 4:
            file.enum_type[0].value[1].name = "RENAMED"
        case _:
            field.number = source.randint(1, 20)
    files = pb.FileDescriptorSet()
    for one in message.file.dependencies:
        one.CopyToProto(files.file.add())
    files.file.append(file)
    return contract_of_set(files.SerializeToString())


def _is_json(field: FieldDescriptor) -> bool:
    return item_of(node_of(field)) == JSON_NODE


def test_a_readable_writer_s_values_are_those_that_it_wrote() -> None:
    """Columns only: what JSON holds goes by the same rules."""
    seed = 20261126
    source = Random(seed)
    compared = refused = 0
    for _ in range(600):
        contract = made_contract(source)
        try:
            other = _changed(source, contract)
        except ContractError:
            # No compiler would pass the change.
            continue
        reader, writer = message_of(contract.text), message_of(other.text)
        if find_differences(reader, writer):
            refused += 1
            continue
        codec = compile_codec(contract.text)
        written = {one.number: one for one in writer.fields}
        for _ in range(4):
            payload = made_message(source, other).SerializeToString()
            message = message_factory.GetMessageClass(writer).FromString(payload)
            values = dict(
                zip(
                    [one.name for one in codec.columns],
                    codec.read(payload).values,
                    strict=True,
                )
            )
            for field in reader.fields:
                meant = written.get(field.number)
                if meant is None or _is_json(field):
                    continue
                compared += 1
                expected = official(message, meant)
                assert same(values[field.name], expected), (seed, field.full_name)
    assert min(compared, refused) > 100, (seed, compared, refused)
