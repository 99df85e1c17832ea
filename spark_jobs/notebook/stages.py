"""The stages of a pipeline on a slice, one by one, and the dry publish at the end."""

from __future__ import annotations

import atexit
import os
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame

from tallyweir.schemas.pipeline import definition_hash
from tallyweir.sinks.postgres.audit import verify
from tallyweir.sinks.postgres.audit.why.slice_results import (
    Position,
    read_slice_results,
)
from tallyweir.sinks.postgres.publish.home import PostgresHome
from tallyweir.sinks.postgres.schema.migrations import migrate
from tallyweir.sinks.postgres.schema.scratch_database import set_watermark
from tallyweir.sinks.postgres.server.connection import connect
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.protocol.coordinator import BatchResult
from tallyweir.sinks.protocol.identity import BatchKey, SparkBatchId
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.sinks.protocol.recovery import StoredPosition
from tallyweir.spark_jobs.batches.prepared_pipeline import (
    ClaimedDatabases,
    prepare_pipeline,
    read_pipeline_files,
)
from tallyweir.spark_jobs.batches.stage_jobs import StageJobs
from tallyweir.spark_jobs.engine.program import read_pipeline
from tallyweir.spark_jobs.notebook.captured_slice import CapturedSlice, as_frame
from tallyweir.spark_jobs.notebook.dry_publish import Comparison, DryPublish
from tallyweir.spark_jobs.notebook.judged_events import JudgedEvents, judge_events
from tallyweir.spark_jobs.registry.known_schemas import without_registry
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.tables.layout_builder import SHARDS
from tallyweir.spark_jobs.tables.scratch_home import ScratchHome, scratch_server

#: Directory of this process, where Spark keeps scratch files until the end.
_OF_PROCESS = tempfile.TemporaryDirectory(prefix="tallyweir-notebook-")


class Stages:
    """A pipeline that reads a slice as its first batch, and commits elsewhere.

    It stages and publishes into scratch databases, by the code that a driver runs;
    ``close`` drops them. Only ``compare_with_committed`` reads the pipeline's own
    databases.

    The pipeline file is read once, at the beginning. After a change of the file, or of
    a function in it, open the stages of the slice again.

    Args:
        captured: The slice.

    Raises:
        PipelineError: The pipeline file is wrong.
        ConfigurationError: ``SLICE_LACKS_LOOKUP``, ``SETTING_MISSING``, or as a driver.
        RetryableError: A server does not answer.

    Crash:
        Scratch databases stay; the next use of the server for scratch databases drops
        them.
    """

    def __init__(self, captured: CapturedSlice) -> None:
        self.captured = captured
        path = captured.pipeline_file
        self.pipeline, self._given = read_pipeline(path)
        if captured.manifest.schema is not None:
            self.pipeline = without_registry(self.pipeline, captured.manifest.schema)
        files = read_pipeline_files(self.pipeline, path, self._given.home_dsn)
        if files.known_schemas is not None:
            files.known_schemas.replay(())
        readers = [captured.lookup_reader(one) for one in self.pipeline.enrich]
        self._opened = ExitStack()
        try:
            self._scratch = self._opened.enter_context(
                closing(
                    ScratchHome(
                        dict.fromkeys(
                            (HOME, *self.pipeline.written_databases),
                            scratch_server(os.environ),
                        ),
                        self.pipeline,
                        captured.manifest.tables,
                    )
                )
            )
            settings = self._scratch.settings(self._given, Path(_OF_PROCESS.name))
            migrate(settings.home_dsn)
            # Read every record from the slice, not by a reader of small batches.
            self._prepared = replace(
                prepare_pipeline(settings, files, readers), computes_nothing=False
            )
            self._databases, self._jobs = self._open()
        except BaseException:
            self._opened.close()
            raise
        # A notebook's kernel ends without calling ``close``.
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the scratch databases; frames that were shown stay valid."""
        atexit.unregister(self.close)
        self._opened.close()

    @property
    def has_changed(self) -> bool:
        """Whether the pipeline has changed since the slice was captured."""
        captured = self.captured.manifest.definition_hash
        return definition_hash(self.pipeline) != captured

    def spark_frame(self, step: str) -> DataFrame:
        """Return Spark's frame after one of its steps, for work by hand.

        Args:
            step: ``decode``, ``compute``, ``enrich``, ``transform``, ``predict`` or
                ``conditions``; a step that the pipeline has.
        """
        frames = dict(
            self._jobs.recipe.steps(
                self._raw, self._jobs.lookups.copies, self._jobs.places
            )
        )
        if step not in frames:
            raise KeyError(f"{step!r}: the steps are {', '.join(frames)}")
        return frames[step]

    def decoded(self) -> pd.DataFrame:
        """Show the fields of each record, and why some records are no events."""
        judged = self._judged
        _, details = judged.reasons(judged.after_rules)
        shown = judged.show(
            [field.name for field in self._jobs.recipe.contracts.fields]
        )
        undecodable = pa.compute.if_else(pa.array(judged.is_event), None, details)
        return as_frame(shown.append_column("undecodable", undecodable))

    def enriched(self) -> pd.DataFrame:
        """Show the events with all columns that are added to their fields."""
        return as_frame(self._judged.show(self._judged.fields.column_names))

    def validated(self) -> pd.DataFrame:
        """Show which events are dead by rules, with the reason, or filtered."""
        return self._show_classes(self._judged.after_rules)

    def deduplicated(self) -> pd.DataFrame:
        """Show which events are duplicates by ID, or older than the horizon."""
        return self._show_classes(self._judged.after_claims)

    def outputs(self) -> dict[str, pd.DataFrame]:
        """Show the staged rows of each output: rows, partials of windows, messages.

        For an output with a function, these are the function's events with their keys.
        """
        staged = self._judged.staged
        return {
            output.table: as_frame(staged[output.staging_table])
            for output in self._jobs.layout.outputs
            if output.staging_table in staged
        }

    def dry_publish(self) -> DryPublish:
        """Publish the slice as one batch, including functions, into scratch tables.

        Staging, votes, the publish transaction and prepared branches work as in a
        driver, but commit into scratch databases. It publishes once; a second call
        returns the same result.

        Raises:
            TallyweirError: As a driver.
        """
        return self._published

    def compare_with_committed(self) -> Comparison:
        """Compare the dry publish with the pipeline's own databases; only read them.

        Raises:
            ConfigurationError: A table may not be read.
            RetryableError: A server does not answer.
        """
        dry = self.dry_publish().results
        spans = {}
        for table, rows in dry.tables.items():
            if rows.key[:1] == ("window_start",) and rows.rows:
                starts = [key[0] for key in rows.by_key()]
                spans[table] = (min(starts), max(starts))
        committed = read_slice_results(
            self._given.home_dsn,
            self.pipeline.name,
            self._plan.ranges,
            databases=self._given.databases,
            spans=spans,
        )
        return Comparison.of(dry, committed, self._positions)

    @cached_property
    def _judged(self) -> JudgedEvents:
        with self._scratch.in_environment():
            return judge_events(self._jobs, self._plan, self._raw)

    @cached_property
    def _published(self) -> DryPublish:
        # Judge the events first: after the publish, their IDs are known.
        _ = self._judged
        return self.publish()

    def publish(self) -> DryPublish:
        """Publish as ``dry_publish`` does, once, without the stages before it.

        Raises:
            TallyweirError: As a driver.
        """
        with self._scratch.in_environment():
            result = self._publish()
        home = self._scratch.home_dsn
        results = read_slice_results(
            home,
            self.pipeline.name,
            self._plan.ranges,
            databases=self._scratch.databases,
            spans={},
        )
        assert results is not None, "it has just been published"
        with connect(home, application_name="tallyweir notebook") as connection:
            receipt = verify(connection, self.pipeline.name, self._scratch.databases)
        return DryPublish(
            results=results,
            receipt=receipt,
            restagings=result.restagings,
            not_demanded=tuple(self._scratch.not_demanded),
        )

    def _publish(self) -> BatchResult:
        jobs = self._jobs
        return jobs.coordinator(self._databases.publisher).run_batch(
            self._plan,
            lambda plan, rejected: jobs.stage_events(lambda: self._raw, plan, rejected),
        )

    def _open(self) -> tuple[ClaimedDatabases, StageJobs]:
        manifest = self.captured.manifest
        prepared = self._prepared
        # This tells Spark's Python workers where to stage; ``in_environment`` tells
        # this process.
        prepared.spark.sparkContext.environment.update(self._scratch.variables)
        run = None if manifest.run is None else manifest.run.name
        home = self._opened.enter_context(closing(prepared.open_home(run=run)))
        home.claim_epoch()
        if manifest.run is None:
            self._register_positions(home)
        if manifest.watermark is not None:
            home_dsn = self._scratch.home_dsn
            set_watermark(home_dsn, self.pipeline.name, manifest.watermark)
        databases = self._opened.enter_context(prepared.opened_databases(home))
        jobs = self._opened.enter_context(
            prepared.opened_jobs(
                home,
                claim=uuid.uuid4().hex[:12],
                places=SourcePlaces(tuple(manifest.topic_ids)),
                tasks=lambda: SHARDS,
            )
        )
        return databases, jobs

    def _register_positions(self, home: PostgresHome) -> None:
        home.register_positions(
            {
                one.offsets.topic_partition: StoredPosition(
                    topic_id=one.topic_id, next_offset=one.from_offset
                )
                for one in self.captured.manifest.ranges
            }
        )

    @cached_property
    def _plan(self) -> BatchPlan:
        home, manifest = self._jobs.home, self.captured.manifest
        progress = home.read_progress()
        planned_at_us = home.read_clock_us()
        self._jobs.lookups.refresh(planned_at_us)
        return BatchPlan(
            key=BatchKey(epoch=home.claim.epoch, spark_batch_id=SparkBatchId(0)),
            ranges=[one.offsets for one in manifest.ranges],
            watermark_us=progress.watermark_us,
            after_sequence=progress.last_sequence,
            clocks=progress.clocks,
            planned_at_us=planned_at_us,
            topic_ids=manifest.topic_ids,
            lookups=self._jobs.versions,
            run=manifest.run,
        )

    @cached_property
    def _raw(self) -> DataFrame:
        return self._prepared.spark.createDataFrame(self.captured.table)

    @property
    def _positions(self) -> list[Position]:
        columns = self.captured.table.select(["topic", "partition", "offset"])
        return [Position(**row) for row in columns.to_pylist()]

    def _show_classes(self, classes: np.ndarray) -> pd.DataFrame:
        judged = self._judged
        codes, details = judged.reasons(classes)
        shown = judged.show(judged.fields.column_names)
        verdicts: Mapping[str, pa.Array] = {
            "outcome": judged.outcomes(classes),
            "reason": codes,
            "detail": details,
        }
        for name, column in verdicts.items():
            shown = shown.append_column(name, column)
        return as_frame(shown)
