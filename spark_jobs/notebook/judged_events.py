"""Runs each stage of a task on the events of a slice, by the task's own code.

It keeps the rows that the task would stage, for a notebook to show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from tallyweir.sinks.postgres.outputs.append_table import AppendTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.protocol.ports import BatchPlan
from tallyweir.spark_jobs.batches.stage_jobs import StageJobs
from tallyweir.spark_jobs.source import event_columns as named
from tallyweir.spark_jobs.source.source_places import SourcePlaces
from tallyweir.spark_jobs.tables.layout_builder import event_columns, read_columns
from tallyweir.spark_jobs.task.classified_events import ClassifiedEvents, EventClass
from tallyweir.spark_jobs.task.staged_rows import StagedRows
from tallyweir.spark_jobs.task.task_worker import TaskWorker

_Classes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEvents:
    """All records after each stage of one task, one row for each.

    Attributes:
        places: Topics that the events come from.
        fields: All columns of the events, in order of the stages that add them.
        events: The events with their last classes, and why some are dead.
        is_event: Whether a row is an event of one of the contracts.
        after_rules: Classes after each event has been judged by itself.
        after_claims: Classes after the claims of IDs.
        staged: The rows that go to staging, by staging table.
        filter_conditions: Conditions that filter events, by the numbers that events
            have.
    """

    places: SourcePlaces
    fields: pa.Table
    events: ClassifiedEvents
    is_event: npt.NDArray[np.bool_]
    after_rules: _Classes
    after_claims: _Classes
    staged: Mapping[str, pa.Table]
    filter_conditions: Sequence[str]

    def show(self, names: Sequence[str]) -> pa.Table:
        """Return the positions followed by some fields."""
        table = self.events.table
        topics, partitions = self.places.split(np.asarray(table.column(named.PLACE)))
        shown = {"partition": partitions, "offset": table.column(named.OFFSET)}
        if len(self.places.topics) > 1:
            shown = {"topic": topics, **shown}
        return pa.table({**shown, **{name: self.fields[name] for name in names}})

    def outcomes(self, classes: _Classes) -> pa.Array:
        """Return each event's class in the ledger's words; ``alive`` if undecided."""
        names = [
            "alive" if c is EventClass.COMMITTED else c.name.lower() for c in EventClass
        ]
        return pa.array(names).take(pa.array(classes))

    def reasons(self, classes: _Classes) -> tuple[pa.Array, pa.Array]:
        """Return reason codes and details of events that are dead or filtered."""
        codes: list[str | None] = [None] * len(classes)
        details: list[str | None] = [None] * len(classes)
        for row, (code, detail) in self.events.reasons.items():
            if classes[row] == EventClass.DEAD:
                codes[row], details[row] = code, detail
        for row in np.flatnonzero(classes == EventClass.FILTERED).tolist():
            number = self.events.array(named.FILTERED_BY)[row].as_py()
            details[row] = f"Not true of the event: {self.filter_conditions[number]}"
        return pa.array(codes, pa.string()), pa.array(details, pa.string())


def judge_events(jobs: StageJobs, plan: BatchPlan, raw: DataFrame) -> JudgedEvents:
    """Run every stage up to staging on all records, in this process.

    Args:
        jobs: Spark jobs of a claim.
        plan: Plan of the batch that the records would be.
        raw: The records, as Spark's Kafka source gives them.

    Raises:
        TallyweirError: The error that a task would return instead of a vote.
    """
    recipe = jobs.recipe
    built = recipe.build(raw, jobs.lookups.copies, jobs.places)
    everything = event_columns(recipe.pipeline, recipe.contracts, built.schema)
    by_position = [(named.PLACE, "ascending"), (named.OFFSET, "ascending")]
    rows = recipe.for_tasks(built, everything).toArrow().sort_by(by_position)
    rows = rows.combine_chunks()
    # Give the task only the columns that it reads, so that it judges as in a driver.
    read = recipe.for_tasks(built, read_columns(jobs.layout)).columns
    task = jobs.task(plan, (), jobs.begin_claims(plan))
    table, found = task.decode(rows.select(read))
    is_event = found.is_event
    worker = TaskWorker(None if jobs.claims is None else jobs.claims.holder)
    try:
        case = task.case(table, is_event, task.rules, worker)
        case.decide("validate")
        after_rules = case.events.classes.copy()
        case.decide("deduplicate")
        after_claims = case.events.classes.copy()
        case.decide("windows")
    finally:
        worker.close()
    kept = KeptRows()
    StagedRows(
        events=case.events,
        layout=jobs.layout,
        places=jobs.places,
        watermark_us=plan.watermark_us,
        filter_conditions=task.filter_conditions,
    ).write(kept, case.new_ids())
    decoded, _ = jobs.record_columns(everything).add_to(rows, task.rules.contracts)
    return JudgedEvents(
        places=jobs.places,
        fields=pa.table({name: decoded.column(name) for name in everything}),
        events=replace(case.events, table=table),
        is_event=is_event,
        after_rules=after_rules,
        after_claims=after_claims,
        staged=kept.tables,
        filter_conditions=task.filter_conditions,
    )


class KeptRows:
    """Collects the rows of one task by staging table."""

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}

    def copy(
        self,
        branch: str,  # noqa: ARG002 - a notebook shows all branches
        table: str,
        columns: tuple[Column, ...],  # noqa: ARG002 - the rows have their names
        rows: pa.Table,
    ) -> None:
        """Keep rows of a staging table."""
        former = self.tables.get(table)
        parts = [rows] if former is None else [former, rows]
        self.tables[table] = pa.concat_tables(parts)

    def copy_results(self, output: AppendTable, rows: pa.Table) -> None:
        """Keep rows of a table that tasks copy into directly."""
        self.copy("", output.staging_table, output.columns, rows)
