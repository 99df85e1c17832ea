"""Where an enrichment looks things up: a table or a topic, as of a time or not."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tallyweir.schemas.pipeline import (
    AsOf,
    Enrichment,
    Pipeline,
    PipelineError,
    from_json,
    load_pipeline,
    pipeline_definition_json,
)

_FILE = """
    pipeline: p
    source:
      topic: departures
      schema: flight_departure.v1
      event_id: event_id
      event_time: scheduled_at
      watermark_delay: 1 hour
    enrich:
      - {ENRICHMENT}
    outputs:
      - append: {table: t}
"""
_PAIRS = "on: {carrier: code}, select: {airline: name}"


def _load(tmp_path: Path, enrichment: str) -> Pipeline:
    file = tmp_path / "p.yaml"
    file.write_text(textwrap.dedent(_FILE).replace("ENRICHMENT", enrichment))
    return load_pipeline(file)


def _problem(tmp_path: Path, enrichment: str) -> tuple[str, str]:
    with pytest.raises(PipelineError) as caught:
        _load(tmp_path, enrichment)
    (problem,) = caught.value.problems
    return problem.code, f"{problem.saw} {problem.fix}"


def test_a_table_may_be_in_another_database_and_have_ranges(tmp_path: Path) -> None:
    """The driver needs that database; the executors, who only write, do not."""
    pipeline = _load(
        tmp_path,
        f"table: rates, database: billing, {_PAIRS}, "
        "as_of: {from: since, until: till}",
    )
    assert pipeline.enrich == (
        Enrichment(
            table="rates",
            database="billing",
            on={"carrier": "code"},
            select={"airline": "name"},
            as_of=AsOf(valid_from="since", valid_until="till"),
        ),
    )
    assert pipeline.enrich[0].label == "rates in billing"
    assert pipeline.wanted_databases == {"billing": ""}
    assert pipeline.written_databases == {}
    assert from_json(pipeline_definition_json(pipeline)) == pipeline


def test_a_topic_is_looked_up_by_its_fields_or_its_records_key(tmp_path: Path) -> None:
    """The records' key is called kafka_key."""
    pipeline = _load(
        tmp_path,
        "topic: pages, schema: page_view.v1, on: {carrier: kafka_key}, "
        "select: {page: page}",
    )
    (enrichment,) = pipeline.enrich
    assert (enrichment.label, enrichment.table) == ("topic pages", None)
    assert from_json(pipeline_definition_json(pipeline)) == pipeline


@pytest.mark.parametrize(
    ("enrichment", "code", "told"),
    [
        (_PAIRS, "PIPELINE_VALUE", "neither"),
        (
            f"table: t, topic: t, schema: page_view.v1, {_PAIRS}",
            "PIPELINE_VALUE",
            "both",
        ),
        (f"topic: t, {_PAIRS}", "PIPELINE_MISSING_KEY", "no schema"),
        (f"table: t, schema: page_view.v1, {_PAIRS}", "PIPELINE_VALUE", "a schema"),
        (
            (
                "topic: t, database: d, schema: page_view.v1, on: {carrier: page}, "
                "select: {airline: country}"
            ),
            "PIPELINE_VALUE",
            "a database",
        ),
        (f"table: t, as_off: 1, {_PAIRS}", "PIPELINE_UNKNOWN_KEY", "Write as_of."),
        (
            f"table: t, {_PAIRS}, as_of: {{from: a, untill: b, until: c}}",
            "PIPELINE_UNKNOWN_KEY",
            "Write until.",
        ),
        (f"table: t, {_PAIRS}, as_of: {{from: a}}", "PIPELINE_MISSING_KEY", "until"),
        (
            "topic: t, schema: page_view.v1, on: {carrier: page}, select: {a: pag}",
            "PIPELINE_UNKNOWN_COLUMN",
            "Write page.",
        ),
        (f"topic: t, schema: nope.v1, {_PAIRS}", "CONTRACT_MISSING", "nope.v1"),
    ],
)
def test_what_is_wrong_with_an_enrichment_is_told(
    tmp_path: Path, enrichment: str, code: str, told: str
) -> None:
    """Before anything starts, and with the key or column that was meant."""
    found, text = _problem(tmp_path, enrichment)
    assert (found, told in text) == (code, True), text
