"""What the monitor may show of a pipeline, in pipeline files and in the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import (
    Monitoring,
    Pipeline,
    PipelineError,
    from_json,
    load_pipeline,
    pipeline_definition_json,
)
from tallyweir.schemas.pipeline.events.tests.test_dead_letter_limit import _FILE
from tallyweir.schemas.pipeline.redaction import find_redaction_problems
from tallyweir.spark_jobs.task.tests import sampled_people as people


def _load(folder: Path, section: str) -> Pipeline:
    path = folder / "p.yaml"
    path.write_text(f"{_FILE}{section}\n")
    return load_pipeline(path)


def test_keys_are_hidden_unless_a_file_says_otherwise(tmp_path: Path) -> None:
    """And no pipeline seems changed by an upgrade."""
    pipeline = _load(tmp_path, "")
    assert not pipeline.monitor.show_keys
    assert "monitor" not in pipeline_definition_json(pipeline)


def test_that_keys_are_shown_is_kept_in_the_ledger(tmp_path: Path) -> None:
    """Whoever asks who may see them finds it there."""
    pipeline = _load(tmp_path, "monitor: {show_keys: true}")
    assert pipeline.monitor == Monitoring(show_keys=True)
    assert pipeline == from_json(pipeline_definition_json(pipeline))


def test_an_unknown_key_of_the_section_is_refused(tmp_path: Path) -> None:
    """A misspelt one would hide or show what nobody meant to."""
    with pytest.raises(PipelineError, match="show_keys"):
        _load(tmp_path, "monitor: {show_key: true}")


def test_samples_and_what_they_leave_out_are_kept_in_the_ledger(tmp_path: Path) -> None:
    """Whoever asks what is kept of events finds it there."""
    pipeline = _load(tmp_path, "monitor: {samples: 5, redact: [event_id, carrier]}")
    assert pipeline.monitor == Monitoring(samples=5, redact=("event_id", "carrier"))
    written = pipeline_definition_json(pipeline)
    assert written["monitor"] == {"samples": 5, "redact": ["event_id", "carrier"]}
    assert pipeline == from_json(written)


@pytest.mark.parametrize(
    ("section", "code", "line"),
    [
        ("{samples: 21}", "PIPELINE_LIMIT", 10),
        ("{samples: all}", "PIPELINE_VALUE", 10),
        ("{redact: [carier]}", "PIPELINE_UNKNOWN_COLUMN", 10),
        ("{redact: [carrier.code]}", "PIPELINE_UNKNOWN_COLUMN", 10),
        ("{redact: [carrier, carrier]}", "PIPELINE_DUPLICATE_NAME", 10),
        ("{redact: carrier}", "PIPELINE_VALUE", 10),
    ],
)
def test_a_rule_that_would_hide_nothing_is_refused_by_its_line(
    tmp_path: Path, section: str, code: str, line: int
) -> None:
    """What was meant would be shown."""
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, f"monitor: {section}")
    assert caught.value.code == code
    assert caught.value.places == (f"{tmp_path / 'p.yaml'}:{line}",)


def test_parts_of_fields_and_columns_of_outputs_may_be_redacted(tmp_path: Path) -> None:
    """In lists, maps and where there may be null, by the names alone."""
    contract = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {
                "name": "items",
                "type": {
                    "type": "array",
                    "items": [
                        "null",
                        {
                            "type": "record",
                            "name": "Item",
                            "fields": [{"name": "price", "type": "int"}],
                        },
                    ],
                },
            },
        ],
    }
    (tmp_path / "order.v1.avsc").write_text(json.dumps(contract))
    file = tmp_path / "p.yaml"
    text = """\
pipeline: p
source: {topic: t, schema: order.v1.avsc, event_id: id, event_time: at,
         watermark_delay: 1 hour}
monitor: {samples: 1, redact: [items.price, last]}
outputs:
  - window: {table: w, fixed: 1 hour, aggregate: {last: max(id)}}
"""
    file.write_text(text)
    assert load_pipeline(file).monitor.redact == ("items.price", "last")
    file.write_text(text.replace("items.price", "items.prize"))
    with pytest.raises(PipelineError, match=r"Write items\.price"):
        load_pipeline(file)


def test_what_a_transform_adds_is_judged_when_it_is_known() -> None:
    """The parts of fields are known before."""
    pipeline = people.pipeline(samples=1, redact=("copied", "address.strait"))
    contracts = people.contracts()
    (part,) = find_redaction_problems(pipeline, contracts)
    assert part.at == ("monitor", "redact", 1)
    assert len(list(find_redaction_problems(pipeline, contracts, ()))) == 2
    assert [part] == list(find_redaction_problems(pipeline, contracts, people.ADDED))
