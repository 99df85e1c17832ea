"""What rules ask of pipelines, beside what the overview has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from psycopg import Connection
from psycopg.rows import TupleRow

from sinks.postgres.ledger.audited_pipeline import fetch, snapshot
from sinks.postgres.server.statements import load_statements

_SQL = load_statements("sinks.postgres.alerting", "alerting.sql")

#: How many of the newest batches a share of dead letters looks at, at the most: the
#: query must stay cheap where a driver publishes fifty a second.
BATCHES_MAX = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFacts:
    """Of one pipeline.

    Attributes:
        in_doubt_s: Since the oldest batch was decided that is not noted as committed
            in every database; 0 without one.
        dead_shares: Dead letters among the records read, by the span looked at.
    """

    in_doubt_s: float
    dead_shares: Mapping[timedelta, float]


def read_pipeline_facts(
    connection: Connection[TupleRow], spans: Iterable[timedelta]
) -> dict[str, PipelineFacts]:
    """Read the facts of all pipelines from one snapshot, by pipeline.

    Args:
        connection: To the home, not inside of a transaction.
        spans: Over which shares of dead letters are wanted.

    Raises:
        ConfigurationError: A table may not be read.
        RetryableError: The server went away.
    """
    shares: dict[str, dict[timedelta, float]] = {}
    with snapshot(connection, doing="reading what rules ask for"):
        rows = fetch(connection, _SQL["pipeline_facts"])
        for span in spans:
            for row in fetch(
                connection, _SQL["dead_shares"], span=span, batches=BATCHES_MAX
            ):
                shares.setdefault(row["pipeline"], {})[span] = row["share"]
    return {
        row["pipeline"]: PipelineFacts(
            in_doubt_s=row["in_doubt_s"],
            dead_shares=shares.get(row["pipeline"], {}),
        )
        for row in rows
    }
