"""Contracts of messages, from sources and from descriptors."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tallyweir.schemas.contract import Contract, list_fields
from tallyweir.schemas.event_contracts import EventContract, EventContracts
from tallyweir.schemas.formats.protobuf.proto_file import compile_source
from tallyweir.schemas.formats.protobuf.protobuf_format import CompiledProtobuf


def contract_of(source: str, message: str = "M") -> Contract:
    """Return the contract of a message in a source; proto3 if it says nothing."""
    if "syntax" not in source and "edition" not in source:
        source = f'syntax = "proto3";\n{source}'
    with TemporaryDirectory() as folder:
        path = Path(folder) / "made.proto"
        path.write_text(source)
        return contract_of_set(compile_source(path), message)


def contract_of_set(files: bytes, message: str = "M") -> Contract:
    """Return the contract of a message in a compiled file."""
    path = Path("made.pb")
    schema = CompiledProtobuf().read_schema(files, path, message)
    return Contract(
        name="made",
        version=1,
        schema_id=1,
        text=schema.text,
        fields=list_fields(schema.tree),
        path=path,
        format=CompiledProtobuf(),
        tree=schema.tree,
    )


def contracts_of(contract: Contract) -> EventContracts:
    """Return what a pipeline has that reads one contract."""
    one = EventContract(contract=contract, writers={contract.schema_id: contract})
    return EventContracts((one,))
