"""Rows that cannot be sent are told by their place."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tallyweir.schemas.contract import Contract, load_contract
from tallyweir.services.produce.emit import TypedRows, _explained, plan_faults
from tallyweir.sinks.protocol.errors import ConfigurationError


@pytest.fixture
def contract(tmp_path: Path) -> Contract:
    """One whose ID need not be there."""
    path = tmp_path / "view.v1.avsc"
    text = ["null", "string"]
    fields = [{"name": n, "type": text, "default": None} for n in ("id", "page")]
    path.write_text(json.dumps({"type": "record", "name": "V", "fields": fields}))
    return load_contract(str(path))


@pytest.mark.parametrize(
    ("row", "key", "saw"),
    [
        ("{}", None, "Line 2: The record has no id"),
        ('{"page": "a"}', None, "Line 2: The record has no id"),
        ('{"id": null}', None, "Line 2: The record has no id"),
        ('{"id": ""}', None, "Line 2: The record has no id"),
        ('{"id": "v"}', "page", "Line 2: The record has no page"),
    ],
)
def test_a_row_without_id_or_key_is_told_by_its_line(
    contract: Contract, row: str, key: str | None, saw: str
) -> None:
    """Also where the contract lets it be left out."""
    rows = io.StringIO(f'{{"id": "1", "page": ""}}\n{row}\n')
    plan = plan_faults(contract=contract, event_id="id", partitions=1, key=key)
    with pytest.raises(ConfigurationError, match=f"INPUT_VALUE: {saw}"):
        list(_explained(plan, TypedRows(rows, contract, form="jsonl")))
