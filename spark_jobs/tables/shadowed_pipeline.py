"""A pipeline with the tables that it really writes, where these are shadows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spark_jobs.pipeline import OutboxOutput, Pipeline


def shadowed(pipeline: Pipeline, shadows: Mapping[str, str]) -> Pipeline:
    """Return the pipeline with each output in its shadow table, if it has one."""
    if not shadows:
        return pipeline
    return replace(
        pipeline,
        outputs=tuple(
            output
            if isinstance(output, OutboxOutput)
            else replace(output, table=shadows.get(output.table, output.table))
            for output in pipeline.outputs
        ),
    )
