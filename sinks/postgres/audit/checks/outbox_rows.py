"""Compares the outbox with the ledger: each published message waits or was sent.

Every committed event is one message of every outbox output, unless the output has a
condition. The relay deletes a message in the transaction that counts it as sent. So::

    messages that batches published == messages that wait + messages that were sent
                                       + messages that were erased before that
"""

from __future__ import annotations

from psycopg import Connection
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit.receipt import Check, judge
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
)
from tallyweir.sinks.postgres.server.statements import load_statements

_OUTBOX = load_statements("tallyweir.sinks.postgres.audit.checks", "outbox.sql")


def check_outbox(
    connection: Connection[TupleRow], pipeline: AuditedPipeline
) -> tuple[Check, ...]:
    """Check the outbox inside the caller's snapshot of the home.

    Returns:
        One check, or an empty tuple if the pipeline never had an outbox output.
    """
    size = fetch_one(connection, _OUTBOX["outbox_size"], pipeline=pipeline.name)
    has_outbox = any(output.kind.sends_messages for output in pipeline.outputs)
    if not has_outbox and not any(size.values()):
        return ()
    violations = [
        f"{row['output_table']}: batch {row['sequence']} committed {row['events']} "
        f"events and published {row['rows']} messages, {row['found']} of them wait"
        for row in fetch(connection, _OUTBOX["broken_outbox"], pipeline=pipeline.name)
    ]
    if size["published"] != size["waiting"] + size["sent"] + size["erased"]:
        erased = f", {size['erased']} were erased" if size["erased"] else ""
        violations.append(
            f"{size['published']} messages were published, {size['waiting']} wait and "
            f"{size['sent']} were sent{erased}"
        )
    waiting = size["waiting"]
    return (
        judge(
            "outbox",
            checked=size["published"],
            unit="messages",
            violations=violations,
            note=f"{waiting} wait for the relay" if waiting else "",
        ),
    )
