"""Pipelines as users write them, checked before Spark starts.

``load_pipeline`` reads a YAML file; Python programs build a ``Pipeline`` themselves and
pass it to ``check_columns``. Either way, a ``PipelineError`` lists all mistakes that
can be known without running. Nothing here needs Spark, Kafka or Postgres.
"""

from __future__ import annotations

from tallyweir.schemas.pipeline.checks.problems import PipelineError, Problem
from tallyweir.schemas.pipeline.columns import check_columns
from tallyweir.schemas.pipeline.definition import Pipeline
from tallyweir.schemas.pipeline.definition_json import (
    definition_hash,
    from_json,
    pipeline_definition_json,
)
from tallyweir.schemas.pipeline.events.deduplicate import Deduplicate
from tallyweir.schemas.pipeline.events.enrichment import AsOf, Enrichment
from tallyweir.schemas.pipeline.events.monitoring import Monitoring, Reported
from tallyweir.schemas.pipeline.events.prediction import Prediction
from tallyweir.schemas.pipeline.events.source import HeaderId, PositionId, Source
from tallyweir.schemas.pipeline.events.source_key import SourceKey
from tallyweir.schemas.pipeline.events.validation import DeadLetterLimit, Rule
from tallyweir.schemas.pipeline.functions.user_code import count, observe
from tallyweir.schemas.pipeline.outputs.aggregate import Aggregate, AggregateFunction
from tallyweir.schemas.pipeline.outputs.append import Append
from tallyweir.schemas.pipeline.outputs.join import Join, JoinSide, Unmatched, Within
from tallyweir.schemas.pipeline.outputs.outbox import Outbox
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output
from tallyweir.schemas.pipeline.outputs.stateful import (
    ListState,
    MapState,
    Stateful,
    ValueState,
    each_session,
    stateful,
)
from tallyweir.schemas.pipeline.outputs.window import (
    Early,
    Fixed,
    Late,
    Panes,
    Session,
    Sliding,
    Window,
)
from tallyweir.schemas.pipeline.pipeline_file import load_pipeline
from tallyweir.sinks.protocol.guarantee import Guarantee

__all__ = [
    "Aggregate",
    "AggregateFunction",
    "Append",
    "AsOf",
    "DeadLetterLimit",
    "Deduplicate",
    "Early",
    "Enrichment",
    "Fixed",
    "Guarantee",
    "HeaderId",
    "Join",
    "JoinSide",
    "Late",
    "ListState",
    "MapState",
    "Monitoring",
    "Outbox",
    "Output",
    "Panes",
    "Pipeline",
    "PipelineError",
    "PositionId",
    "Prediction",
    "Problem",
    "Reported",
    "Rule",
    "Session",
    "Sliding",
    "Source",
    "SourceKey",
    "Stateful",
    "Unmatched",
    "ValueState",
    "Window",
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
