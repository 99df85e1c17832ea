"""Read the ``.avsc`` file of a contract."""

from __future__ import annotations

import json
from pathlib import Path

from tallyweir.schemas.errors import ContractError, noting, raise_faults
from tallyweir.schemas.formats.avro.safety import parse_schema
from tallyweir.schemas.formats.format import SCHEMA_ID_MAX, Schema


def read_schema(content: bytes, path: Path) -> Schema:
    """Read a schema, which may name its id in ``schema_id``.

    Raises:
        ContractError: ``CONTRACT_MALFORMED`` or ``CONTRACT_SCHEMA_ID``.
        UnsafeContractError: A payload of it could kill a decoder.
    """
    try:
        schema = json.loads(content)
    except (ValueError, RecursionError) as exc:
        raise _malformed(path, f"is not JSON ({exc})") from exc
    if not isinstance(schema, dict):
        raise _malformed(path, "is not a JSON object")
    declared_id = schema.pop("schema_id", None)
    faults: list[ContractError] = []
    with noting(faults):
        schema_id = _checked_id(declared_id, path)
    with noting(faults):
        tree = parse_schema(schema)
    raise_faults(faults)
    text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    return Schema(text=text, tree=tree, schema_id=schema_id)


def _malformed(path: Path, saw: str) -> ContractError:
    return ContractError(
        "CONTRACT_MALFORMED",
        saw=f"{path} {saw}.",
        why="The file is not a valid Avro schema.",
        fix="Correct the .avsc file (Avro specification, Schema Declaration).",
    )


def _checked_id(declared: object, path: Path) -> int | None:
    if declared is None:
        return None
    if (
        not isinstance(declared, int)
        or isinstance(declared, bool)
        or not 1 <= declared <= SCHEMA_ID_MAX
    ):
        raise ContractError(
            "CONTRACT_SCHEMA_ID",
            saw=f"{path} has schema_id {json.dumps(declared)[:40]}.",
            why="The id travels as four bytes, and must be positive.",
            fix=f"Write the registry's id, 1 to {SCHEMA_ID_MAX}, or leave it out.",
        )
    return declared
