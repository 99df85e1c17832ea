"""Pipelines as users write them, checked before Spark starts.

``load_pipeline`` reads a YAML file; Python programs build a ``Pipeline`` themselves and
pass it to ``check_columns``. Either way, a ``PipelineError`` lists all mistakes that
can be known without running. Nothing here needs Spark, Kafka or Postgres.
"""

from __future__ import annotations

from schemas.pipeline.checks.problems import PipelineError, Problem
from schemas.pipeline.columns import check_columns
from schemas.pipeline.definition import Pipeline
from schemas.pipeline.definition_json import (
    definition_hash,
    from_json,
    pipeline_definition_json,
)
from schemas.pipeline.events.dead_letter_limit import DeadLetterLimit
from schemas.pipeline.events.deduplicate import Deduplicate
from schemas.pipeline.events.enrichment import AsOf, Enrichment
from schemas.pipeline.events.monitoring import Monitoring
from schemas.pipeline.events.prediction import Prediction
from schemas.pipeline.events.reported import Reported
from schemas.pipeline.events.rule import Rule
from schemas.pipeline.events.source import HeaderId, Source
from schemas.pipeline.functions.custom_figures import count, observe
from schemas.pipeline.outputs.aggregate import Aggregate, AggregateFunction
from schemas.pipeline.outputs.append import AppendOutput
from schemas.pipeline.outputs.closed_sessions import each_session
from schemas.pipeline.outputs.join import JoinOutput, JoinSide, Unmatched, Within
from schemas.pipeline.outputs.outbox import OutboxOutput
from schemas.pipeline.outputs.pipeline_output import Output
from schemas.pipeline.outputs.stateful import (
    ListState,
    MapState,
    StatefulOutput,
    ValueState,
    stateful,
)
from schemas.pipeline.outputs.window import Late, WindowOutput
from schemas.pipeline.outputs.window_kinds import Fixed, Session, Sliding
from schemas.pipeline.outputs.window_panes import Early, Panes
from schemas.pipeline.pipeline_file import load_pipeline
from sinks.protocol.guarantee import Guarantee

__all__ = [
    "Aggregate",
    "AggregateFunction",
    "AppendOutput",
    "AsOf",
    "DeadLetterLimit",
    "Deduplicate",
    "Early",
    "Enrichment",
    "Fixed",
    "Guarantee",
    "HeaderId",
    "JoinOutput",
    "JoinSide",
    "Late",
    "ListState",
    "MapState",
    "Monitoring",
    "OutboxOutput",
    "Output",
    "Panes",
    "Pipeline",
    "PipelineError",
    "Prediction",
    "Problem",
    "Reported",
    "Rule",
    "Session",
    "Sliding",
    "Source",
    "StatefulOutput",
    "Unmatched",
    "ValueState",
    "WindowOutput",
    "Within",
    "check_columns",
    "count",
    "definition_hash",
    "each_session",
    "from_json",
    "load_pipeline",
    "observe",
    "pipeline_definition_json",
    "stateful",
]
