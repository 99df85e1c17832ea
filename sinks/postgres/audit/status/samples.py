"""The newest rows of each step, as the last batches that had any have left them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow

from sinks.postgres.ledger.audited_pipeline import fetch, fetch_pipeline, snapshot
from sinks.postgres.server.statements import load_statements
from sinks.protocol.errors import ConfigurationError
from sinks.protocol.samples import SampledRow, parse_row

_SQL = load_statements("sinks.postgres.audit.status", "samples.sql")

#: As events pass them, each with those that went no further behind it.
_ORDER = (
    *("decode", "validate", "dead", "expired", "filtered", "deduplicate", "duplicate"),
    *("enrich", "transform", "predict", "stage", "late", "keys"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSample:
    """The newest rows of one step.

    Attributes:
        step: As the job graph calls it.
        output: The table of the output that the rows are for; None for events.
        sequence: The batch that they are of.
        redacted: Fields that they have and that are kept nowhere.
        rows: The newest first.
    """

    step: str
    output: str | None
    sequence: int
    published_at: datetime
    redacted: tuple[str, ...]
    rows: tuple[SampledRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSamples:
    """What a pipeline keeps of its rows.

    Attributes:
        limit: How many of each step; 0 if its file asks for none.
        steps: Those that had rows, in order.
    """

    limit: int
    steps: tuple[KeptSample, ...]


def read_samples(
    connection: Connection[TupleRow], pipeline: str, *, step: str | None = None
) -> KeptSamples:
    """Read the newest rows of a pipeline's steps.

    They are what events hold, but for what the pipeline redacts: whoever shows them
    asks first who is to see them.

    Args:
        connection: To the home, not inside of a transaction. Nothing is written.
        pipeline: Its name.
        step: Only those of this step.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN`` or ``STEP_UNKNOWN``.
        RetryableError: The server went away.
    """
    if step is not None and step not in _ORDER:
        raise ConfigurationError(
            "STEP_UNKNOWN",
            saw=f"No step is called {step[:40]!r}.",
            why="There are no rows of it.",
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
