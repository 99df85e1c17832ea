"""Runs a pipeline on a captured slice of its topic, stage by stage, for notebooks.

``tallyweir notebook`` captures a slice and opens a notebook next to it. There::

    from tallyweir import open_slice

    captured = open_slice()             # starts nothing, and needs no server
    captured.records()
    stages = captured.stages()          # Spark, and databases that are thrown away
    stages.validated()
    published = stages.dry_publish()
    stages.compare_with_committed().rows

Each stage runs the product's own code on the slice's records. Nothing here writes to
Kafka or to a database of the pipeline.
"""

from __future__ import annotations

from tallyweir.spark_jobs.notebook.captured_slice import CapturedSlice, open_slice
from tallyweir.spark_jobs.notebook.dry_publish import Comparison, DryPublish
from tallyweir.spark_jobs.notebook.stages import Stages

__all__ = ["CapturedSlice", "Comparison", "DryPublish", "Stages", "open_slice"]
