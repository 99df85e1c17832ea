"""Keys, headers, times and topics of records in pipeline files and definitions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import HeaderId, Pipeline, PipelineError, load_pipeline
from tallyweir.schemas.pipeline.columns import named_kafka_columns, reads_headers
from tallyweir.schemas.pipeline.definition_json import (
    from_json,
    pipeline_definition_json,
)

_FILE = """
pipeline: orders
source:
  topic: orders
  format: json
  fields: {{number: integer, at: timestamptz not null, {field}: text}}
  key: {key}
  event_id: {event_id}
  event_time: at
  watermark_delay: 1 hour
filter: {filter}
outputs:
  - append: {{table: orders, columns: {columns}}}
"""


def _load(folder: Path, **changed: str) -> Pipeline:
    given = {
        "key": "{format: json, fields: {tenant: text not null, order.id: bigint}}",
        "event_id": "[key.tenant, key.order_id, header:kind]",
        "columns": "[number, key_order_id]",
        "filter": "number > 1",
        "field": "note",
    }
    path = folder / "orders.yaml"
    path.write_text(_FILE.format(**given | changed))
    return load_pipeline(path)


def _columns(pipeline: Pipeline) -> list[str]:
    fields = list(pipeline.source.fields)
    return [one.name for one in named_kafka_columns(pipeline, fields)]


def _problems(folder: Path, **changed: str) -> list[tuple[str, str]]:
    with pytest.raises(PipelineError) as caught:
        _load(folder, **changed)
    return [(one.code, one.saw) for one in caught.value.problems]


def test_a_definition_gives_the_key_and_the_parts_of_the_id_back(
    tmp_path: Path,
) -> None:
    """Through JSON, as the ledger keeps it."""
    pipeline = _load(tmp_path)
    assert pipeline.source.event_id == (
        "key_tenant",
        "key_order_id",
        HeaderId(header="kind"),
    )
    written = json.loads(json.dumps(pipeline_definition_json(pipeline)))
    assert from_json(written) == pipeline


@pytest.mark.parametrize(
    ("columns", "condition", "wanted"),
    [
        ("[number]", "number > 1", []),
        ("[number]", "Kafka_Topic = 'a'", ["kafka_topic"]),
        ("[kafka_key, 'header:a.b']", "number > 1", ["kafka_key", "header:a.b"]),
        ("[number]", "'`header:A` IS NULL'", ["header:A"]),
        ("[kafka_headers]", "kafka_topic = 'a'", ["kafka_topic", "kafka_headers"]),
    ],
)
def test_only_what_a_pipeline_names_is_read(
    columns: str, condition: str, wanted: list[str], tmp_path: Path
) -> None:
    """Headers only where a name needs them."""
    text = "{format: text}"
    pipeline = _load(
        tmp_path, columns=columns, filter=condition, event_id="key", key=text
    )
    assert _columns(pipeline) == wanted
    of_headers = [one for one in wanted if one.startswith(("header:", "kafka_h"))]
    assert reads_headers(pipeline) == bool(of_headers)


def test_a_field_hides_what_kafka_calls_the_same(tmp_path: Path) -> None:
    """The pipeline of a contract with such a field stays what it was."""
    pipeline = _load(tmp_path, field="kafka_key", columns="[kafka_key]")
    assert _columns(pipeline) == ["header:kind"]


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        (
            {"key": "{format: csv}"},
            ("PIPELINE_VALUE", "The format of the key is 'csv'."),
        ),
        (
            {"key": "{format: json}"},
            (
                "PIPELINE_MISSING_KEY",
                "The key is in the format json, without fields.",
            ),
        ),
        (
            {"key": "{format: text, schema: a.avsc}"},
            ("PIPELINE_VALUE", "The key has schema, and the format text."),
        ),
        (
            {"event_id": "[number]"},
            ("PIPELINE_VALUE", "The parts of the event ID are number."),
        ),
        (
            {"event_id": "[at, number]"},
            (
                "PIPELINE_COLUMN_TYPE",
                "The field 'at' is of type timestamp-micros.",
            ),
        ),
        (
            {"event_id": "key.nothing"},
            ("PIPELINE_UNKNOWN_COLUMN", "There is no column 'key_nothing'."),
        ),
        (
            {"field": "key_tenant"},
            (
                "PIPELINE_DUPLICATE_NAME",
                "There are two fields called 'key_tenant'.",
            ),
        ),
        (
            {"columns": "['header:a', 'header:A']"},
            ("PIPELINE_DUPLICATE_NAME", "There are two columns called 'header_A'."),
        ),
        (
            {"columns": "[kafka_topic]"},
            ("PIPELINE_RESERVED_NAME", "The column is called 'kafka_topic'."),
        ),
    ],
)
def test_a_mistake_is_told(
    changed: dict[str, str], wanted: tuple[str, str], tmp_path: Path
) -> None:
    """Before anything starts, by what was seen."""
    assert wanted in _problems(tmp_path, **changed)
