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
        Prediction,
        Problem,
        Reported,
        Rule,
        Session,
        Sliding,
        Source,
        Stateful,
        Unmatched,
        ValueState,
        Window,
        Within,
        count,
        each_session,
        load_pipeline,
        observe,
        stateful,
    )
    from tallyweir.spark_jobs.notebook import open_slice

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
    "Prediction",
    "Problem",
    "Reported",
    "Rule",
    "Session",
    "Sliding",
    "Source",
    "Stateful",
    "Unmatched",
    "ValueState",
    "Window",
    "Within",
    "count",
    "each_session",
    "load_pipeline",
    "observe",
    "open_slice",
    "stateful",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = (
        "tallyweir.spark_jobs.notebook"
        if name == "open_slice"
        else "tallyweir.schemas.pipeline"
    )
    return getattr(importlib.import_module(home), name)
