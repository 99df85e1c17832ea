"""The newest rows of each step, kept with the last batch that had any."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    fetch_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError
from tallyweir.sinks.protocol.samples import SampledRow, parse_row

_SQL = load_statements("tallyweir.sinks.postgres.audit.status", "kept_samples.sql")

#: In the order that events take; a step is followed by the ways aside from it.
_ORDER = (
    *("decode", "validate", "dead", "expired", "filtered", "deduplicate", "duplicate"),
    *("enrich", "transform", "predict", "stage", "late", "keys"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSample:
    """The newest rows of one step.

    Attributes:
        step: Its name in the job graph.
        output: The table of the output that the rows are for; None for events.
        sequence: The batch that the rows are from.
        redacted: Fields that the rows have and that are never kept.
        rows: The rows, newest first.
    """

    step: str
    output: str | None
    sequence: int
    published_at: datetime
    redacted: tuple[str, ...]
    rows: tuple[SampledRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSamples:
    """The samples that a pipeline keeps of its rows.

    Attributes:
        limit: How many rows of each step it keeps; 0 if its file asks for none.
        steps: The steps that had rows, in order.
    """

    limit: int
    steps: tuple[KeptSample, ...]


def read_samples(
    connection: Connection[TupleRow], pipeline: str, *, step: str | None = None
) -> KeptSamples:
    """Read the newest rows of a pipeline's steps.

    The rows have what the events hold, except for what the pipeline redacts. A caller
    that shows them must first check who may see them.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline's name.
        step: Return only the rows of this step.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN`` or ``STEP_UNKNOWN``.
        RetryableError: The server went away.
    """
    if step is not None and step not in _ORDER:
        raise ConfigurationError(
            "STEP_UNKNOWN",
            saw=f"No step is called {step[:40]!r}.",
            why="Samples are kept of the steps of the job graph only.",
            fix=f"Name one of {', '.join(_ORDER)}.",
        )
    with snapshot(connection, doing="reading a pipeline's samples"):
        row = fetch_pipeline(connection, pipeline)
        found = fetch(
            connection, _SQL["samples"], pipeline=pipeline, order=list(_ORDER)
        )
    return KeptSamples(
        limit=row["definition"].get("monitor", {}).get("samples", 0),
        steps=tuple(
            KeptSample(
                step=one["step"],
                output=one["output_table"] or None,
                sequence=one["sequence"],
                published_at=one["published_at"],
                redacted=tuple(one["redacted"]),
                rows=tuple(map(parse_row, one["rows"])),
            )
            for one in found
            if step in {None, one["step"]}
        ),
    )
