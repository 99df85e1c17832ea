"""Keyed state: counts result rows for ``verify``, and shows one key to a person."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import Connection
from psycopg.errors import UndefinedTable
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.receipt import Check, judge
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    accepted_losses,
    fetch,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.outputs.key_text import format_key
from tallyweir.sinks.postgres.server.statements import load_statements

_KEYED = load_statements("tallyweir.sinks.postgres.audit.checks", "keyed.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReport:
    """A pipeline's rows of state and of timers for one key, by column."""

    state: list[DictRow]
    timers: list[DictRow]


def check_stateful_outputs(
    connection: Connection[TupleRow], pipeline: AuditedPipeline
) -> tuple[Check, ...]:
    """Count the rows of stateful outputs, inside the caller's snapshot of the home.

    Returns:
        One check, or an empty tuple if the pipeline has no stateful outputs.
    """
    outputs = [output for output in pipeline.outputs if output.kind.keeps_keys]
    if not outputs:
        return ()
    checked = 0
    violations: list[str] = []
    for output in outputs:
        found = _count_results(connection, pipeline.name, output)
        checked += sum(found.values())
        violations += _miscounted(connection, pipeline.name, output, found)
    return (
        judge(
            "stateful_outputs",
            checked=checked,
            unit="rows",
            violations=violations,
            note=accepted_losses(outputs),
        ),
    )


def read_key(connection: Connection[TupleRow], pipeline: str, words: str) -> KeyReport:
    """Read what a pipeline keeps for a key, from one snapshot.

    Args:
        connection: To the home, outside a transaction.
        pipeline: The pipeline's name.
        words: The key as a person writes it: its value, or a JSON array of several.

    Raises:
        ConfigurationError: No such pipeline.
        RetryableError: The server went away.
    """
    values = {"pipeline": pipeline, "keys": spellings(words)}
    with snapshot(connection, doing="reading keyed state"):
        read_pipeline(connection, pipeline)
        return KeyReport(
            state=fetch(connection, _KEYED["state_of_key"], **values),
            timers=fetch(connection, _KEYED["timers_of_key"], **values),
        )


def spellings(words: str) -> list[str]:
    """Return every key that the words may mean: 7 may be a number or text."""
    keys = [format_key([words])]
    try:
        value = json.loads(words)
    except ValueError:
        return keys
    return [*keys, format_key(value if isinstance(value, list) else [value])]


def _count_results(
    connection: Connection[TupleRow], pipeline: str, output: AuditedOutput
) -> Counter[int]:
    try:
        with connection.transaction():
            rows = fetch(
                connection,
                _KEYED["results_by_batch"].format(table=output.identifier),
                pipeline=pipeline,
                output_table=output.table,
            )
    except UndefinedTable:
        return Counter()
    return Counter({row["sequence"]: row["found"] for row in rows})


def _miscounted(
    connection: Connection[TupleRow],
    pipeline: str,
    output: AuditedOutput,
    found: Counter[int],
) -> Iterator[str]:
    rows = fetch(
        connection,
        _KEYED["claimed_results"],
        pipeline=pipeline,
        output_table=output.table,
    )
    claimed = Counter({row["sequence"]: row["rows"] for row in rows})
    for sequence in sorted({*found, *claimed}):
        if sequence < output.owing_from:
            continue
        if found[sequence] != claimed[sequence]:
            yield (
                f"{output.table}: {found[sequence]} rows of batch {sequence}, the "
                f"ledger counts {claimed[sequence]}"
            )
