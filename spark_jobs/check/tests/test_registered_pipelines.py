"""Pipelines over a schema registry are checked by a file that their cases name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import PipelineError
from tallyweir.schemas.pipeline.pipeline_file import load_pipeline
from tallyweir.spark_jobs.check.check_file import CheckFile, read_check_file

_PIPELINE = """
pipeline: orders
source:
  topic: orders
  schema: registry
  event_id: order_id
  event_time: kafka_timestamp
  watermark_delay: 1 hour
outputs:
  - append: {table: orders}
"""
_LOOKUP = """
enrich:
  - {topic: notes, schema: registry, on: {order_id: order_id}, select: {note: note}}
"""
_CASES = """
cases:
  - name: one
    records:
      - {value: {order_id: o1}}
"""
_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "order_id", "type": "string"}],
}


def _read(directory: Path, pipeline: str, cases: str) -> CheckFile:
    (directory / "orders.yaml").write_text(pipeline, "utf-8")
    (directory / "orders.check.yaml").write_text(cases, "utf-8")
    (directory / "order.v1.avsc").write_text(json.dumps(_ORDER), "utf-8")
    file = directory / "orders.yaml"
    return read_check_file(directory / "orders.check.yaml", load_pipeline(file), file)


def test_the_file_stands_for_the_schema_in_the_registry(tmp_path: Path) -> None:
    """Values are written by it, and the pipeline has no registry any more."""
    found = _read(tmp_path, _PIPELINE, f"schema: order.v1.avsc\n{_CASES}")
    assert (
        str(tmp_path / "order.v1.avsc") == found.schema == found.pipeline.source.schema
    )
    assert b"\0" == (found.cases[0].records[0].value or b"")[:1]


def test_a_json_schema_stands_for_one_in_the_registry_too(tmp_path: Path) -> None:
    """The documents of cases have no ids in front."""
    order = {"type": "object", "properties": {"order_id": {"type": "string"}}}
    (tmp_path / "order.v1.schema.json").write_text(json.dumps(order), "utf-8")
    pipeline = _PIPELINE.replace("  schema", "  format: json\n  schema")
    found = _read(tmp_path, pipeline, f"schema: order.v1.schema.json\n{_CASES}")
    assert b'{"order_id":"o1"}' == found.cases[0].records[0].value


@pytest.mark.parametrize(
    ("pipeline", "cases", "told"),
    [
        (_PIPELINE, _CASES, "the cases name no file"),
        (
            _PIPELINE + _LOOKUP,
            f"schema: order.v1.avsc\n{_CASES}",
            "looks up in a topic behind a schema registry",
        ),
    ],
)
def test_what_only_a_registry_knows_is_refused_with_the_fix(
    pipeline: str, cases: str, told: str, tmp_path: Path
) -> None:
    """A check asks none."""
    with pytest.raises(PipelineError, match=told) as refused:
        _read(tmp_path, pipeline, cases)
    assert "Fix: " in str(refused.value)
