"""Which alerts fire now, as the alerts service has recorded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.errors import UndefinedTable
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    fetch,
    ledger_missing,
    snapshot,
)
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.alerting", "alerting.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class FiringAlert:
    """An alert that has fired and lasts; the fields as in ``Alert``.

    Attributes:
        untold: Channels that have not taken the notification yet.
    """

    pipeline: str
    rule: str
    severity: str
    since: datetime
    fired_at: datetime
    value: float
    told: str
    untold: tuple[str, ...]


def read_firing(connection: Connection[TupleRow]) -> tuple[FiringAlert, ...]:
    """Read the firing alerts, by pipeline, those that wake the operator first.

    Raises:
        ConfigurationError: ``LEDGER_MISSING``, or a table may not be read.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="reading firing alerts"):
        try:
            rows = fetch(connection, _SQL["firing"])
        except UndefinedTable as error:
            raise ledger_missing() from error
    return tuple(FiringAlert(**{**row, "untold": tuple(row["untold"])}) for row in rows)
