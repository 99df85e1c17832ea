"""Sources that name the fields of JSON documents, or have no IDs or times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallyweir.schemas.contract import load_contract
from tallyweir.schemas.event_contracts import load_event_contracts
from tallyweir.schemas.pipeline import (
    HeaderId,
    Pipeline,
    PipelineError,
    PositionId,
    from_json,
    load_pipeline,
    pipeline_definition_json,
)

_VALID = """\
pipeline: orders
source:
  topic: orders
  format: json
  fields:
    order_id: text not null
    customer.id: bigint
    placed_at: timestamptz
  unknown: rest
  event_id: order_id
  event_time: placed_at
  watermark_delay: 1 hour
outputs:
  - append: {table: orders, columns: [order_id, customer_id, rest]}
"""
_JOIN = """\
  - join:
      table: pairs
      on: [order_id]
      within: {before: 1 hour, after: 1 hour}
      left: {where: customer_id > 0, select: {a: order_id}}
      right: {where: customer_id < 0, select: {b: order_id}}
"""


def _load(directory: Path, text: str) -> Pipeline:
    file = directory / "orders.yaml"
    file.write_text(text)
    return load_pipeline(file)


def test_fields_are_a_contract_that_the_ledger_keeps(tmp_path: Path) -> None:
    """An audit reads the documents by the definition alone, without the file."""
    pipeline = _load(tmp_path, _VALID)
    definition = pipeline_definition_json(pipeline)
    assert pipeline == from_json(definition)
    contracts = load_event_contracts([definition["source"]["schema"]])
    assert ["order_id", "customer_id", "placed_at", "rest"] == [
        field.name for field in contracts.fields
    ]


@pytest.mark.parametrize("event_id", ["position", "order_id", "header:id"])
def test_the_ledger_keeps_where_ids_and_times_come_from(
    tmp_path: Path, event_id: str
) -> None:
    """``position`` is no field; without IDs nothing is deduplicated."""
    text = _VALID.replace("event_id: order_id", f"event_id: {event_id}")
    text = text.replace("event_time: placed_at", "event_time: kafka_timestamp")
    pipeline = _load(tmp_path, text)
    assert pipeline == from_json(pipeline_definition_json(pipeline))
    expected = {"position": PositionId(), "header:id": HeaderId(header="id")}
    assert expected.get(event_id, event_id) == pipeline.source.event_id
    assert (event_id == "position") == (pipeline.deduplicate is None)


_KEYS = _VALID[_VALID.index("  format:") : _VALID.index("  event_id:")]
_FIELDS = _VALID[_VALID.index("  fields:") : _VALID.index("  unknown:")]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (": bigint", ": bigit", (5, "CONTRACT_MALFORMED", "bigint")),
        ("unknown: rest", "unknown: keep", (5, "CONTRACT_MALFORMED", "ignore")),
        ("format: json", "format: xml", (4, "PIPELINE_VALUE", "avro or json")),
        ("  format: json\n", "", (4, "PIPELINE_VALUE", "Add format: json")),
        (_FIELDS, "", (2, "PIPELINE_MISSING_KEY", "Add it to source")),
        ("  format:", "  schema: a.avsc\n  format:", (4, "PIPELINE_VALUE", "schema")),
        (_KEYS, "  schema: '{{ x }}'\n", (4, "PIPELINE_VALUE", "name or path")),
        ("customer_id,", "customer.id,", (14, "PIPELINE_NAME", "")),
        (
            "event_time: placed_at",
            "event_time: customer_id",
            (11, "PIPELINE_COLUMN_TYPE", "another field"),
        ),
    ],
)
def test_a_mistake_is_found_on_its_line(
    tmp_path: Path, old: str, new: str, expected: tuple[int, str, str]
) -> None:
    """One edit to a valid file gives its own code, line and remedy."""
    assert _VALID.count(old) == 1, "the edit must be unambiguous"
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, _VALID.replace(old, new))
    found = [
        (int(place.rpartition(":")[2]), one.code, one.fix)
        for place, one in zip(caught.value.places, caught.value.problems, strict=True)
    ]
    line, code, fix = expected
    assert (line, code) == found[0][:2], found
    assert fix in found[0][2]


def test_contracts_of_one_meaning_are_equal_wherever_they_are(tmp_path: Path) -> None:
    """Two pipelines may read a topic in the same way."""
    reference = _load(tmp_path, _VALID).source.schemas[0]
    assert load_contract(reference, tmp_path) == load_contract(reference)


def test_repeats_cannot_be_asked_for_without_ids(tmp_path: Path) -> None:
    """No record has the position of another."""
    text = _VALID.replace("event_id: order_id", "event_id: position")
    text = text.replace("outputs:", "deduplicate: {horizon: 1 day}\noutputs:")
    with pytest.raises(PipelineError, match="Remove deduplicate"):
        _load(tmp_path, text)


def test_outputs_that_read_the_time_from_a_field_need_one(tmp_path: Path) -> None:
    """Kafka's timestamp is in no column of the event."""
    text = _VALID.replace("event_time: placed_at", "event_time: kafka_timestamp")
    with pytest.raises(PipelineError, match=r"pairs is Kafka's timestamp"):
        _load(tmp_path, text + _JOIN)
