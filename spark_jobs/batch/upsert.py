"""Checks, before an upsert run begins, that its pipeline supports it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tallyweir.schemas.pipeline import Pipeline
from tallyweir.schemas.pipeline.checks.databases import HOME
from tallyweir.sinks.postgres.outputs.pipeline_layout import PipelineLayout
from tallyweir.sinks.protocol.errors import ConfigurationError

_NO_PAYLOADS = "Without hashes of payloads a correction looks like a repeat."
_ALREADY_OUT = "The run cannot undo there what an event contributed."
_IN_ONE_TRANSACTION = (
    "A row and its replacement must share one transaction of the home database."
)


def check_upsert(pipeline: Pipeline) -> None:
    """Check that the rows of an event can be found and replaced in a pipeline.

    Raises:
        ConfigurationError: ``RUN_CANNOT_UPSERT``, with the first obstacle.
    """
    for obstacle, why, fix in _obstacles(pipeline):
        raise ConfigurationError(
            "RUN_CANNOT_UPSERT",
            saw=f"The pipeline {obstacle}.",
            why=why,
            fix=f"{fix}, or load into a pipeline with a name and tables of its own.",
        )


def _obstacles(pipeline: Pipeline) -> Iterator[tuple[str, str, str]]:
    """Yield each obstacle, the reason, and a fix."""
    event_id, deduplicate = pipeline.source.event_id, pipeline.deduplicate
    if not isinstance(event_id, str):
        yield (
            f"takes the event ID from {pipeline.source.id_place}",
            "The tables do not hold it, so the run could not find an event's rows.",
            "Append",
        )
        return
    if len(pipeline.source.schemas) > 1:
        yield (
            f"reads several contracts, {', '.join(pipeline.source.schemas)}",
            "Events of two contracts that share an ID would look like corrections.",
            "Append",
        )
    if deduplicate is None:
        yield "has deduplicate: off", _NO_PAYLOADS, "Append"
    elif not deduplicate.conflicts:
        yield (
            "has deduplicate.conflicts: false, so it keeps no hash of payloads",
            _NO_PAYLOADS,
            "Leave conflicts out of deduplicate",
        )
    for output in pipeline.outputs:
        if not output.has_event_rows:
            yield (
                f"has the output {output.table}, which does not append",
                _ALREADY_OUT,
                "Append",
            )
        elif output.databases != (HOME,) or output.transactions > 1:
            yield (
                f"writes {output.table} in other databases or in branches",
                _IN_ONE_TRANSACTION,
                "Append",
            )
        elif not output.holds(event_id):
            yield (
                f"leaves the ID {event_id} out of the columns of {output.table}",
                "The run finds an ID's rows by this column.",
                f"Add {event_id} to the columns",
            )


def correcting(layout: PipelineLayout, pipeline: Pipeline) -> PipelineLayout:
    """Return the layout of a run that finds the rows to correct by the event's ID.

    Args:
        layout: Layout of the pipeline.
        pipeline: A pipeline that ``check_upsert`` accepts.
    """
    (column,) = {
        column
        for output in layout.outputs
        for column in output.read_columns
        if column.name == pipeline.source.event_id
    }
    return replace(layout, corrected_by=column)
