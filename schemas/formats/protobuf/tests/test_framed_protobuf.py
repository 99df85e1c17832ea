"""Messages behind a schema registry's ids."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2 as pb

from tallyweir.schemas.codec import decode, encode
from tallyweir.schemas.errors import ContractError
from tallyweir.schemas.event_contracts import EventContracts, load_event_contracts
from tallyweir.schemas.formats.protobuf.proto_file import compile_source
from tallyweir.schemas.payload_report import readable_field, report_payload
from tallyweir.schemas.registered_contract import Pin
from tallyweir.sinks.protocol.registered_schema import RegisteredSchema

_HEAD = 'syntax = "proto3"; package shop;\n'
_ORDER = f"""{_HEAD}
import "google/protobuf/timestamp.proto";
import "common/money.proto";
enum State {{ NEW = 0; PAID = 1; }}
message Payment {{ string id = 1; }}
message Order {{
  message Line {{ string sku = 1; }}
  string id = 1;
  int32 n = 2;
  google.protobuf.Timestamp at = 3;
  common.Money price = 4;
  State state = 5;
  repeated Line lines = 6;
}}
"""
_MONEY = """syntax = "proto3"; package common;
import "common/unit.proto";
message Money { int64 units = 1; Unit unit = 2; }
"""
_UNIT = 'syntax = "proto3"; package common;\nenum Unit { EUR = 0; USD = 1; }\n'
_RECORD: dict[str, object] = {
    "id": "a",
    "n": 7,
    "at": None,
    "price": '{"units":"5","unit":"USD"}',
    "state": "PAID",
    "lines": '[{"sku":"x"}]',
}


def _schema(
    schema_id: int, text: str, references: Sequence[tuple[str, str]] = ()
) -> RegisteredSchema:
    return RegisteredSchema(
        schema_id=schema_id, kind="PROTOBUF", text=text, references=tuple(references)
    )


def _contracts(*schemas: RegisteredSchema, message: str = "Order") -> EventContracts:
    pin = Pin(
        subject="orders-value",
        version=3,
        schema_id=schemas[0].schema_id,
        part=message,
    )
    assert pin == Pin.of(pin.reference)
    return load_event_contracts([pin.reference], None, schemas)


def _compiled(folder: Path, files: Mapping[str, str], name: str) -> str:
    """Return a file as Confluent's serialiser in Python registers it."""
    for path, text in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    (folder / "whole.proto").write_text(files[name])
    whole = pb.FileDescriptorSet.FromString(compile_source(folder / "whole.proto"))
    found = whole.file[-1]
    if name != "order.proto":
        found.name = f"registered as {name}"
    return base64.b64encode(found.SerializeToString()).decode()


@pytest.mark.parametrize("compiled", [(), ("common/unit.proto",), "all"])
def test_a_schema_is_read_with_all_that_it_imports(
    compiled: Sequence[str], tmp_path: Path
) -> None:
    """Each file may be a source, or what the compiler made of it."""
    files = {
        "common/unit.proto": _UNIT,
        "common/money.proto": _MONEY,
        "order.proto": _ORDER,
    }
    texts = {
        name: _compiled(tmp_path, files, name)
        if compiled == "all" or name in compiled
        else text
        for name, text in files.items()
    }
    own = texts.pop("order.proto")
    contracts = _contracts(_schema(7, own, [*texts.items()]))
    contract = contracts.each[0].contract
    assert "orders-value.v3" == contract.reference
    payload = encode(contract, _RECORD)
    # The second message of the file.
    assert payload.startswith(b"\0\0\0\0\7\2\2\n\1a")
    assert _RECORD == decode(payload, contracts.writers)
    assert contracts.writers == pickle.loads(pickle.dumps(contracts)).writers


@pytest.mark.parametrize(
    ("text", "references", "message", "code"),
    [
        (f"{_HEAD}message A {{ string a = 1; }}", [], "B", "CONTRACT_MESSAGE"),
        (f"{_HEAD}message A {{}} message B {{}}", [], "", "CONTRACT_MESSAGE"),
        ("message {", [], "", "CONTRACT_MALFORMED"),
        (f'{_HEAD}import "a.proto";', [], "", "CONTRACT_MALFORMED"),
        (f'{_HEAD}import "a.proto";', [("../a", _UNIT)], "", "CONTRACT_MALFORMED"),
        (f'{_HEAD}import "a.proto";', [("/a", _UNIT)], "", "CONTRACT_MALFORMED"),
        ("", [], "", "CONTRACT_MESSAGE"),
        ("AAAA", [], "", "CONTRACT_MALFORMED"),
    ],
)
def test_what_is_no_schema_is_told_without_a_place_on_this_machine(
    text: str, references: list[tuple[str, str]], message: str, code: str
) -> None:
    """The text becomes part of dead letters, which a replay compares."""
    with pytest.raises(ContractError, match=code) as caught:
        _contracts(_schema(7, text, references), message=message)
    assert "/tmp" not in str(caught.value)
    assert "schema 7 of the registry" in caught.value.saw


def test_the_format_of_the_source_is_that_of_the_schema() -> None:
    """A subject of Protobuf is not read as Avro, and the other way round."""
    own = _schema(7, f"{_HEAD}message A {{ string a = 1; }}")
    for part, schema in (
        (None, own),
        (
            "",
            RegisteredSchema(
                schema_id=7,
                kind="AVRO",
                text='{"type": "record", "name": "A", "fields": []}',
            ),
        ),
    ):
        pin = Pin(subject="s", version=1, schema_id=7, part=part)
        with pytest.raises(ContractError, match="CONTRACT_KIND"):
            load_event_contracts([pin.reference], None, [schema])


_FIRST = f"{_HEAD}message Order {{ string id = 1; int64 n = 2; optional int32 p = 3; }}"
_SECOND = f"""{_HEAD}message Payment {{ string x = 1; }}
message Order {{ string key = 1; int32 n = 2; string coupon = 4; }}"""
_FOREIGN = f"{_HEAD}message Order {{ bytes id = 1; string n = 2; int32 p = 3; }}"


def test_every_writer_is_read_by_the_pinned_message() -> None:
    """Fields match by number, and a message is told by the indexes of its own file."""
    contracts = _contracts(
        _schema(1, _FIRST),
        _schema(2, _SECOND),
        _schema(3, _FOREIGN),
        _schema(4, f"{_HEAD}message Other {{ string id = 1; }}"),
        RegisteredSchema(schema_id=5, kind="AVRO", text='"string"'),
    )
    assert {1, 2} == set(contracts.writers)
    unreadable = contracts.each[0].unreadable
    assert "id is written as bytes and read as string" in unreadable[3]
    assert "p means another thing when it is absent" in unreadable[3]
    assert "'shop.Order'" in unreadable[4]
    assert "AVRO" in unreadable[5]
    body = b"\n\1a\x10\7"
    second = b"\0\0\0\0\2\2\2" + body + b"\x22\1c"
    assert {"id": "a", "n": 7, "p": None} == decode(second, contracts.writers)

    def detail(payload: bytes) -> str:
        error = contracts.diagnose(payload)
        assert error is not None
        return str(error)

    assert "WRONG_TYPE: the message is shop.Payment" in detail(b"\0\0\0\0\2\0\n\1a")
    assert "MALFORMED: schema id 1 has no message at [1]" in detail(b"\0\0\0\0\1\2\2")
    assert "UNKNOWN_SCHEMA: schema id 3: " in detail(b"\0\0\0\0\3\0" + body)
    assert "UNKNOWN_SCHEMA: schema id 9" in detail(b"\0\0\0\0\x09\0" + body)
    assert "BAD_MAGIC" in detail(body)


def _payloads(seed: int) -> list[bytes | None]:
    source = Random(seed)
    made: list[bytes | None] = [None, b"", b"\0", b"\0\0\0\0\1", b"\0\0\0\0\1\0"]
    for number in range(400):
        header = b"\0" + source.choice([1, 1, 1, 2, 2, 3, 9, 0, 1 << 31]).to_bytes(4)
        indexes = source.choice([b"\0", b"\0", b"\2\2", b"\2\0", b"\4\0\0", b"\1", b""])
        body = b"\n\1%c" % (97 + number % 20) + source.choice(
            [b"", b"\x10\5", b"\x18\0", b"\x22\1c", b"\x10", b"\x12\1x"]
        )
        payload = source.choice([header, header, header, b""]) + indexes + body
        made.append(payload[: source.choice([None, None, None, -1])])
    source.shuffle(made)
    return made


@pytest.mark.parametrize("seed", range(5))
def test_a_batch_is_decoded_as_each_payload_is(seed: int) -> None:
    """Runs of one writer, and its ids that nobody knows, included."""
    contracts = _contracts(*map(_schema, (1, 2, 3), (_FIRST, _SECOND, _FOREIGN)))
    payloads = _payloads(seed)
    decoded = contracts.decoder(["id", "n", "p"]).decode(
        pa.array(payloads, pa.binary())
    )
    assert decoded.canonical is not None
    canonical = decoded.canonical.to_pylist()
    columns = [decoded.columns[name].to_pylist() for name in ("id", "n", "p")]
    events = 0
    for row, payload in enumerate(payloads):
        error = contracts.diagnose(payload)
        assert decoded.is_event[row] == (error is None), (payload, error)
        values = tuple(column[row] for column in columns)
        report = report_payload(payload, contracts)
        assert (report.problem is None) == (error is None)
        if error is None:
            assert payload is not None
            events += 1
            record = decode(payload, contracts.writers)
            assert tuple(record.values()) == values
            assert payload.endswith(canonical[row])
            assert "id" == report.fields[0].name
            assert str(record["id"]) == report.fields[0].value
        else:
            assert (None, None, None) == values
            assert canonical[row] is None
    assert events > 20
    wanted = contracts.wanted_schemas(decoded.unknown_ids)
    # What has no header may look like one.
    assert 9 in wanted
    assert not wanted & {0, 1, 2, 3, 1 << 31}, seed
    unnamed = {name for name, count in decoded.unnamed.items() if count}
    assert {"#4"} == unnamed


def test_the_fields_of_a_dead_letter_are_shown_with_their_places() -> None:
    """The header and the indexes count."""
    contracts = _contracts(_schema(1, _FIRST))
    payload = b"\0\0\0\0\1\0\n\1a\x10"
    report = report_payload(payload, contracts)
    assert 1 == report.schema_id
    assert [("id", 6, 9, "a")] == [
        (one.name, one.from_byte, one.until_byte, one.value) for one in report.fields
    ]
    assert ("n", 9) == (report.failed_field, report.failed_at)
    assert "a" == readable_field(payload, contracts.writers, "id")
    assert None is readable_field(b"\0\0\0\0\1\2\2\n\1a", contracts.writers, "id")
