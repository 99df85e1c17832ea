"""Merges the seen-ID catalogs of one home, in parallel with the resolver's rounds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from tallyweir.sinks.postgres.catalog.catalog_merge import (
    MergeablePipeline,
    MergedBucket,
    merge_next_bucket,
    read_mergeable,
)
from tallyweir.sinks.protocol.errors import TallyweirError


@dataclass(kw_only=True)
class MergeReport:
    """The merged buckets, and the errors of the others."""

    merged: list[MergedBucket] = field(default_factory=list)
    #: Codes of errors; each has been logged.
    failures: list[str] = field(default_factory=list)


def merge_catalogs(
    dsn: str, *, is_stopped: Callable[[], bool] = lambda: False
) -> MergeReport:
    """Merge every bucket that is due; a failure is logged and does not stop the rest.

    Args:
        dsn: Connection string of the home database.
        is_stopped: Called before each bucket; True ends the merge.

    Crash:
        As ``merge_next_bucket``; the next call does the rest.
    """
    report = MergeReport()
    log = structlog.get_logger()

    def tell_failure(error: TallyweirError, pipeline: str | None) -> None:
        report.failures.append(error.code)
        log.error(
            "seen IDs not merged",
            pipeline=pipeline,
            error_code=error.code,
            saw=error.saw,
            why=error.why,
            fix=error.fix,
        )

    def merge_all_of(pipeline: MergeablePipeline) -> None:
        while not is_stopped():
            merged = merge_next_bucket(dsn, pipeline, Path(tempfile.gettempdir()))
            if merged is None:
                return
            report.merged.append(merged)
            log.info(
                "seen IDs merged",
                pipeline=merged.pipeline,
                bucket=merged.bucket,
                rows=merged.rows,
                chunks=merged.chunks,
                ids=merged.ids,
            )

    try:
        pipelines = read_mergeable(dsn)
    except TallyweirError as error:
        tell_failure(error, None)
        return report
    for pipeline in pipelines:
        try:
            merge_all_of(pipeline)
        except TallyweirError as error:
            tell_failure(error, pipeline.name)
    return report
