"""Sources whose contract a schema registry has."""

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
  schema: registry
  event_id: order_id
  event_time: placed_at
  watermark_delay: 1 hour
outputs:
  - append: {table: orders, columns: [order_id, customer_id]}
"""
_JSON = """\
  format: json
  schema: registry
  fields: {order_id: text, customer_id: bigint, placed_at: timestamptz}
"""


def _load(directory: Path, old: str = "", new: str = "") -> Pipeline:
    file = directory / "orders.yaml"
    file.write_text(_VALID.replace(old, new))
    return load_pipeline(file)


@pytest.mark.parametrize(
    ("new", "subject"),
    [
        ("  schema: registry\n", "orders-value"),
        ("  schema: registry\n  subject: all\n", "all"),
        (_JSON, None),
    ],
)
def test_the_subject_is_that_of_the_topic_unless_it_is_named(
    tmp_path: Path, new: str, subject: str | None
) -> None:
    """Named fields need none."""
    pipeline = _load(tmp_path, "  schema: registry\n", new)
    assert subject == pipeline.source.wanted_subject
    assert pipeline == from_json(pipeline_definition_json(pipeline))


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        ("schema: registry", "schema: [registry, a.v1.avsc]", "a.v1.avsc"),
        ("topic: orders", "topic: [orders, more]", "'subject' is missing"),
        (
            "schema: registry",
            "schema: flight_departure.v1\n  subject: s",
            "a subject",
        ),
        (
            "  schema: registry\n",
            f"{_JSON}  subject: s\n",
            "a subject",
        ),
        ("schema: registry", "format: json\n  schema: registry", "'fields' is missing"),
        ("schema: registry", "schema: registry\n  fields: {a: text}", "has fields"),
    ],
)
def test_what_does_not_go_with_a_registry_is_told(
    tmp_path: Path, old: str, new: str, seen: str
) -> None:
    """Before anything is asked."""
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, old, new)
    assert seen in str(caught.value)
