"""Compares rows that tasks copied at least once with the ledger.

A batch that ran again has repeated rows, and a batch that was never published may have
left some. So the check counts positions, not rows. The ledger settles each position: it
is a row of the output, or was put aside. For each output, leaving out what was put
aside::

    positions in a range == the range's committed events; with a condition, not fewer
    than the batch says that the output took
    sum of the offsets of a batch's positions == the batch's checksum
    no position twice in a batch that was published exactly once

A staging that was never published may have read other lookups. Its rows may be of
events that the condition of an output, or the batch itself, finally left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from psycopg.rows import DictRow

from tallyweir.sinks.postgres.audit.audited_databases import AuditedDatabases
from tallyweir.sinks.postgres.audit.checks.appended_rows import (
    readable_appends,
    rows_ever,
)
from tallyweir.sinks.postgres.audit.checks.ledger_ranges import BOUNDS, LedgerRanges
from tallyweir.sinks.postgres.audit.receipt import Check, judge
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    accepted_losses,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.offsets import TopicPartition

_COPIED = load_statements("tallyweir.sinks.postgres.audit.checks", "copied.sql")


@dataclass(slots=True)
class _Batch:
    """The rows that an output holds from one batch."""

    by_partition: Counter[TopicPartition] = field(default_factory=Counter)
    checksum: int = 0
    repeated: int = 0


@dataclass(slots=True)
class _Found:
    """Row counts over all outputs, and the rows among them that prove nothing."""

    rows: int = 0
    repeated: int = 0
    unpublished: int = 0
    put_aside: int = 0


def check_copied_rows(
    databases: AuditedDatabases, pipeline: AuditedPipeline, ranges: LedgerRanges
) -> tuple[Check, Check]:
    """Check that nothing is lost, and count the rows that are present more than once.

    Runs inside the caller's snapshots. All of the tables are in the home database.
    """
    found = _Found()
    violations: list[str] = []
    for output, claims in readable_appends(databases, pipeline, violations):
        batches = _read_batches(databases, pipeline, output, ranges, found)
        violations += _broken_batches(output, batches, claims)
        violations += _broken_ranges(output, batches, claims, ranges)
    others = {
        "of batches that were not published": found.unpublished,
        "of events that became dead letters in the end": found.put_aside,
    }
    return (
        judge(
            "append_outputs",
            checked=found.rows,
            unit="rows",
            violations=violations,
            note=accepted_losses(pipeline.appends),
        ),
        judge(
            "repeated_rows",
            checked=found.repeated,
            unit="rows",
            violations=(),
            note="; ".join(f"{n} more {what}" for what, n in others.items() if n),
        ),
    )


def _read_batches(
    databases: AuditedDatabases,
    pipeline: AuditedPipeline,
    output: AuditedOutput,
    ranges: LedgerRanges,
    found: _Found,
) -> dict[int, _Batch]:
    statement = _COPIED["positions"].format(table=rows_ever(output), bounds=BOUNDS)
    batches: dict[int, _Batch] = {}
    for row in databases.home.fetch(
        statement,
        pipeline=pipeline.name,
        output_table=output.table,
        **ranges.parameters,
    ):
        found.rows += row["rows"]
        if row["sequence"] is None:
            found.unpublished += row["rows"]
            continue
        if row["is_aside"]:
            found.put_aside += row["rows"]
            continue
        batch = batches.setdefault(row["sequence"], _Batch())
        where = TopicPartition(row["topic"], row["partition"])
        batch.by_partition[where] += row["positions"]
        batch.checksum += int(row["checksum"])
        batch.repeated += row["rows"] - row["positions"]
        found.repeated += row["rows"] - row["positions"]
    return batches


def _broken_batches(
    output: AuditedOutput, batches: dict[int, _Batch], claims: list[DictRow]
) -> Iterator[str]:
    for claim in claims:
        sequence = claim["sequence"]
        if sequence < output.owing_from:
            continue
        batch = batches.get(sequence, _Batch())
        positions = batch.by_partition.total()
        where = f"{output.table}: batch {sequence}"
        if positions < claim["events"]:
            yield (
                f"{where} says {claim['events']} events, the table holds {positions} "
                "of them"
            )
        elif positions == claim["events"] and batch.checksum != int(claim["checksum"]):
            yield (
                f"{where}: the offsets of its rows add up to {batch.checksum}, its "
                f"checksum is {claim['checksum']}"
            )
        if batch.repeated and claim["guarantee"] == Guarantee.EXACTLY_ONCE:
            yield f"{where} was published exactly once and has {batch.repeated} repeats"


def _broken_ranges(
    output: AuditedOutput,
    batches: dict[int, _Batch],
    claims: list[DictRow],
    ranges: LedgerRanges,
) -> Iterator[str]:
    owing = {row["sequence"] for row in claims if not row["is_conditional"]}
    for sequence, where, committed in sorted(ranges.committed_by_range()):
        found = batches.get(sequence, _Batch()).by_partition[where]
        if sequence < output.owing_from:
            continue
        if sequence in owing and found != committed:
            yield (
                f"{output.table}: {found} events of batch {sequence} on {where}, the "
                f"ledger counts {committed}"
            )
