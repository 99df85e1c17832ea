"""Which pipelines take a run that upserts, and what the others are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tallyweir.schemas.pipeline import Append, Deduplicate, HeaderId, Pipeline
from tallyweir.schemas.pipeline.outputs.outbox import Outbox
from tallyweir.schemas.pipeline.tests.pipelines import DEPARTURES, SOURCE
from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.spark_jobs.batch.upsert import check_upsert, correcting

_FITTING = replace(
    DEPARTURES,
    outputs=(
        Append(table="departures"),
        Append(table="early", columns=("carrier", "event_id"), where="true"),
    ),
)


def _with(*outputs: Append | Outbox) -> Pipeline:
    return replace(_FITTING, outputs=(*_FITTING.outputs, *outputs))


def test_a_pipeline_that_appends_its_ids_at_home_takes_an_upsert() -> None:
    """Whole events, or columns with the ID among them; with a condition or without."""
    check_upsert(_FITTING)


@pytest.mark.parametrize(
    ("pipeline", "told"),
    [
        (DEPARTURES, "has the output departures_by_hour, which does not append"),
        (
            _with(Outbox(topic="alarms", key="carrier")),
            "which does not append",
        ),
        (
            _with(Append(table="far", databases=("billing",))),
            "writes far in other databases or in branches",
        ),
        (
            _with(Append(table="wide", branches=2)),
            "writes wide in other databases or in branches",
        ),
        (
            _with(Append(table="bare", columns=("carrier",))),
            "leaves the ID event_id out of the columns of bare",
        ),
        (
            replace(_FITTING, source=replace(SOURCE, schema=("a.v1", "b.v1"))),
            "reads several contracts, a.v1, b.v1",
        ),
        (replace(_FITTING, deduplicate=None), "has deduplicate: off"),
        (
            replace(_FITTING, deduplicate=Deduplicate(conflicts=False)),
            "has deduplicate.conflicts: false",
        ),
        (
            replace(
                _FITTING, source=replace(SOURCE, event_id=HeaderId(header="ce_id"))
            ),
            "takes the event ID from the header 'ce_id'",
        ),
    ],
)
def test_what_could_not_be_replaced_is_refused(pipeline: Pipeline, told: str) -> None:
    """Whatever it is: nothing of the run has been done then."""
    with pytest.raises(ConfigurationError, match="RUN_CANNOT_UPSERT") as refusal:
        check_upsert(pipeline)
    assert told in refusal.value.saw


def test_rows_are_found_by_the_column_of_the_id() -> None:
    """As the append tables have it, whichever other columns these have."""
    carrier = Column(name="carrier", postgres_type="text")
    event_id = Column(name="event_id", postgres_type="bigint")
    layout = PipelineLayout(
        pipeline="departures",
        definition="{}",
        definition_hash="",
        outputs=tuple(
            AppendTable(table=table, staging_table=table, event_columns=columns)
            for table, columns in {
                "departures": (event_id, carrier),
                "early": (carrier, event_id),
            }.items()
        ),
        shards=1,
        bucket_seconds=60,
        watermark_delay_us=0,
        idle_timeout_us=1,
        horizon_us=1,
    )
    assert correcting(layout, _FITTING).corrected_by == event_id
