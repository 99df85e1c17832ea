"""Facts about pipelines that rules need besides the overview."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch, snapshot
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.alerting", "alerting.sql")

#: Largest number of newest batches that a share of dead letters covers: the query must
#: stay cheap if a driver publishes fifty batches a second.
BATCHES_MAX = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFacts:
    """Facts about one pipeline.

    Attributes:
        in_doubt_s: Seconds since the decision of the oldest batch that is not noted as
            committed in every database; 0 without one.
        dead_shares: Share of dead letters among the records read, by span of time.
    """

    in_doubt_s: float
    dead_shares: Mapping[timedelta, float]


def read_pipeline_facts(
    connection: Connection[TupleRow], spans: Iterable[timedelta]
) -> dict[str, PipelineFacts]:
    """Read the facts of all pipelines from one snapshot, by pipeline.

    Args:
        connection: To the home, outside of a transaction.
        spans: Spans of time over which shares of dead letters are wanted.

    Raises:
        ConfigurationError: A table may not be read.
        RetryableError: The server went away.
    """
    shares: dict[str, dict[timedelta, float]] = {}
    with snapshot(connection, doing="reading the facts that rules need"):
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
