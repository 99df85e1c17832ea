"""Sources of Protocol Buffers: a message of a file is their contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import (
    Pipeline,
    PipelineError,
    from_json,
    load_pipeline,
    pipeline_definition_json,
)

_VALID = """\
pipeline: orders
source:
  topic: orders
  format: protobuf
  schema: orders.proto#Order
  event_id: order_id
  event_time: placed_at
  watermark_delay: 1 hour
outputs:
  - append: {table: orders, columns: [order_id, total]}
"""
_ORDERS = """\
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  string order_id = 1;
  uint64 total = 2;
  google.protobuf.Timestamp placed_at = 3;
}
"""


def _load(directory: Path, text: str) -> Pipeline:
    (directory / "orders.proto").write_text(_ORDERS)
    file = directory / "orders.yaml"
    file.write_text(text)
    return load_pipeline(file)


def test_a_message_of_a_file_may_be_the_key(tmp_path: Path) -> None:
    """Its fields are columns of the event."""
    key = "  key: {format: protobuf, schema: orders.proto#Order}\n  event_id: "
    pipeline = _load(
        tmp_path,
        _VALID.replace("  event_id: order_id", f"{key}key.order_id").replace(
            "total]", "total, key_total]"
        ),
    )
    assert "key_order_id" == pipeline.source.event_id
    assert pipeline == from_json(pipeline_definition_json(pipeline))


def test_the_ledgers_definition_names_the_message(tmp_path: Path) -> None:
    """And tells the format by it."""
    pipeline = _load(tmp_path, _VALID)
    definition = pipeline_definition_json(pipeline)
    assert pipeline == from_json(definition)
    assert definition["source"]["schema"] == "orders.proto#Order"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("proto#Order", "proto#Ordr", "CONTRACT_MESSAGE"),
        ("format: protobuf\n", "format: protobuff\n", "Write avro or json or protobuf"),
        ("  format: protobuf\n", "", "Add format: protobuf"),
        ("orders.proto#Order", "page_view.v1", "Write schema: FILE.proto#MESSAGE"),
        ("schema: orders.proto#Order", "fields: {a: text}", "has fields, and the"),
        (
            "  event_id",
            "  key: {format: avro, schema: orders.proto#Order}\n  event_id",
            "The schema of the key is",
        ),
        (
            "  event_id",
            "  key: {format: protobuf, schema: a.avsc}\n  event_id",
            "The schema of the key is",
        ),
        ("total]", "totl]", "PIPELINE_UNKNOWN_COLUMN"),
        ("event_time: placed_at", "event_time: total", "PIPELINE_COLUMN_TYPE"),
    ],
)
def test_a_wrong_source_says_what_to_write(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    """With the line of the file."""
    assert old in _VALID
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, _VALID.replace(old, new))
    assert expected in str(caught.value)
