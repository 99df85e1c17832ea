"""The newest receipt of each pipeline: when it was last verified, and the result.

``verify`` notes its result here; no decision depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit.receipt import Receipt
from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.audit.status", "receipt.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReceipt:
    """The newest result of ``verify``.

    Attributes:
        summary: The result in a sentence.
        batches: How many batches of the ledger it covered.
        taken_at: When it was noted, by the home's clock.
        taken_by: The role that noted it.
    """

    is_verified: bool
    summary: str
    batches: int
    taken_at: datetime
    taken_by: str


def note_receipt(connection: Connection[TupleRow], receipt: Receipt) -> None:
    """Keep a receipt in place of the former one.

    Args:
        connection: To the home, outside a transaction.
        receipt: The result to keep.

    Raises:
        ConfigurationError: The role may not note it.
        RetryableError: The server went away, or is a standby.

    Crash:
        Before the COMMIT the former receipt stays; the next verify notes its own.
    """
    with translated("recording a receipt"), connection.transaction():
        connection.execute(
            _SQL["note"],
            {
                "pipeline": receipt.pipeline,
                "is_verified": receipt.is_verified,
                "summary": receipt.summary,
                "batches": receipt.totals.batches,
            },
        )


def read_receipts(connection: Connection[TupleRow]) -> dict[str, KeptReceipt]:
    """Read the receipt of each pipeline that has one, in the caller's snapshot."""
    return {
        row.pop("pipeline"): KeptReceipt(**row)
        for row in fetch(connection, _SQL["receipts"])
    }
