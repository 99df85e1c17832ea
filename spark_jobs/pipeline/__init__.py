"""Pipelines as users write them, checked before Spark starts.

``load_pipeline`` reads a YAML file; Python programs build a ``Pipeline`` themselves and
pass it to ``check_columns``. Either way, a ``PipelineError`` lists all mistakes that
can be known without running. Nothing here needs Spark, Kafka or Postgres.
"""

from __future__ import annotations

from sinks.protocol.guarantee import Guarantee
from spark_jobs.pipeline.aggregate import Aggregate, AggregateFunction
from spark_jobs.pipeline.append import AppendOutput
from spark_jobs.pipeline.closed_sessions import each_session
from spark_jobs.pipeline.columns import check_columns
from spark_jobs.pipeline.custom_figures import count, observe
from spark_jobs.pipeline.dead_letter_limit import DeadLetterLimit
from spark_jobs.pipeline.deduplicate import Deduplicate
from spark_jobs.pipeline.definition import Pipeline
from spark_jobs.pipeline.definition_json import (
    definition_hash,
    from_json,
    pipeline_definition_json,
)
from spark_jobs.pipeline.enrichment import AsOf, Enrichment
from spark_jobs.pipeline.join import JoinOutput, JoinSide, Unmatched, Within
from spark_jobs.pipeline.monitoring import Monitoring
from spark_jobs.pipeline.outbox import OutboxOutput
from spark_jobs.pipeline.pipeline_file import load_pipeline
from spark_jobs.pipeline.pipeline_output import Output
from spark_jobs.pipeline.prediction import Prediction
from spark_jobs.pipeline.problems import PipelineError, Problem
from spark_jobs.pipeline.reported import Reported
from spark_jobs.pipeline.rule import Rule
from spark_jobs.pipeline.source import HeaderId, Source
from spark_jobs.pipeline.stateful import (
    ListState,
    MapState,
    StatefulOutput,
    ValueState,
    stateful,
)
from spark_jobs.pipeline.window import Late, WindowOutput
from spark_jobs.pipeline.window_kinds import Fixed, Session, Sliding
from spark_jobs.pipeline.window_panes import Early, Panes

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
