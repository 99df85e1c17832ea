"""Events from Kafka through Spark into Postgres, each counted exactly once.

Python pipelines and notebooks import their names from here; docs/python.md describes
them. A name loads its module when it is first used: every service and every task
imports this package, and most of them need neither pipelines nor Spark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallyweir.schemas.pipeline import (
        Aggregate,
        AggregateFunction,
        Append,
        AsOf,
        DeadLetterLimit,
        Deduplicate,
        Early,
        Enrichment,
        Fixed,
        Guarantee,
        HeaderId,
        Join,
        JoinSide,
        Late,
        ListState,
        MapState,
        Monitoring,
        Outbox,
        Output,
        Panes,
        Pipeline,
        PipelineError,
        PositionId,
        Prediction,
        Problem,
        Reported,
        Rule,
        Session,
        Sliding,
        Source,
        SourceKey,
        Stateful,
        Unmatched,
        ValueState,
        Window,
        Within,
        count,
        each_session,
        observe,
        stateful,
    )
    from tallyweir.spark_jobs.engine.pipeline_code import (
        load_with_code as load_pipeline,
    )
    from tallyweir.spark_jobs.notebook import open_slice as open_slice

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
    "count",
    "each_session",
    "load_pipeline",
    "observe",
    "stateful",
]

#: Where names are that the Spark side defines. ``open_slice`` is not in ``__all__``,
#: because it needs Spark, and ``import *`` must work without.
_IN_SPARK_JOBS = {
    "load_pipeline": ("spark_jobs.engine.pipeline_code", "load_with_code"),
    "open_slice": ("spark_jobs.notebook", "open_slice"),
}


def __getattr__(name: str) -> object:
    if name not in {*__all__, *_IN_SPARK_JOBS}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _IN_SPARK_JOBS.get(name, ("schemas.pipeline", name))
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
