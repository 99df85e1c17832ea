"""Puts the shadow tables that a pipeline really writes in place of its file's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tallyweir.schemas.pipeline import Pipeline


def shadowed(pipeline: Pipeline, shadows: Mapping[str, str]) -> Pipeline:
    """Return the pipeline with each output in its shadow table, if it has one."""
    if not shadows:
        return pipeline
    return replace(
        pipeline,
        outputs=tuple(
            output.renamed(shadows[output.table]) if output.table in shadows else output
            for output in pipeline.outputs
        ),
    )
