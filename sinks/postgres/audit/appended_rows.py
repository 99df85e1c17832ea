"""Holds the rows of append outputs against the ledger, position by position.

Every committed event is one row of every append output, because an append output
refuses nothing. So, for each of them::

    rows in a range == the range's committed events
    sum of the offsets of a batch's rows == the batch's checksum
    no position twice, none outside of the ranges, none that was put aside as well
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from psycopg import Connection
from psycopg.rows import DictRow, TupleRow

from sinks.postgres.audit.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    fetch,
    read_positions,
)
from sinks.postgres.audit.receipt import Check, judge, not_applicable
from sinks.postgres.statements import load_statements
from sinks.protocol.offsets import TopicPartition

_OUTPUTS = load_statements("sinks.postgres.audit", "outputs.sql")
_POSITION_COLUMNS = ["kafka_topic", "kafka_partition", "kafka_offset"]


def check_append_outputs(
    connection: Connection[TupleRow], pipeline: AuditedPipeline
) -> Check:
    """Check all append outputs, inside of the caller's snapshot."""
    if not pipeline.appends:
        return not_applicable(
            "append_outputs", unit="rows", why="the pipeline appends nothing"
        )
    checked = 0
    violations: list[str] = []
    for output in pipeline.appends:
        missing = fetch(
            connection,
            _OUTPUTS["missing_columns"],
            table=output.quoted(connection),
            columns=_POSITION_COLUMNS,
        )
        claims = fetch(
            connection,
            _OUTPUTS["output_claims"],
            pipeline=pipeline.name,
            output_table=output.table,
        )
        if missing:
            if claims:
                names = ", ".join(row["name"] for row in missing)
                violations.append(f"{output.table}: the table has no column {names}")
            continue
        tallies = _tally(connection, pipeline, output)
        checked += sum(row["found"] for row in tallies)
        positions = read_positions(connection, pipeline.name)
        violations += _broken_tallies(output.table, tallies, positions)
        violations += _broken_claims(output.table, tallies, claims)
        violations += _broken_positions(connection, pipeline, output)
    return judge("append_outputs", checked=checked, unit="rows", violations=violations)


def _tally(
    connection: Connection[TupleRow], pipeline: AuditedPipeline, output: AuditedOutput
) -> list[DictRow]:
    statement = _OUTPUTS["tallied_rows"].format(table=output.identifier)
    return fetch(
        connection, statement, pipeline=pipeline.name, output_table=output.table
    )


def _broken_tallies(
    table: str, tallies: list[DictRow], positions: dict[TopicPartition, int]
) -> Iterator[str]:
    for row in tallies:
        where = TopicPartition(row["topic"], row["partition"])
        if row["sequence"] is None:
            beyond = row["highest"] >= positions.get(where, 0)
            yield (
                f"{table}: {row['found']} rows of {where} lie in no batch, offsets "
                f"{row['lowest']} to {row['highest']}"
                + (
                    f", though the next offset to read is {positions.get(where, 0)}"
                    if beyond
                    else ""
                )
            )
        elif row["found"] != row["claimed"]:
            yield (
                f"{table}: {row['found']} rows of batch {row['sequence']} on {where}, "
                f"the ledger counts {row['claimed']}"
            )


def _broken_claims(
    table: str, tallies: list[DictRow], claims: list[DictRow]
) -> Iterator[str]:
    """Compare what each batch as a whole said about this output."""
    found: dict[int, int] = defaultdict(int)
    checksums: dict[int, int] = defaultdict(int)
    for row in tallies:
        if row["sequence"] is not None:
            found[row["sequence"]] += row["found"]
            checksums[row["sequence"]] += int(row["checksum"])
    for claim in claims:
        sequence = claim["sequence"]
        if not claim["events"] == claim["rows"] == found[sequence]:
            yield (
                f"{table}: batch {sequence} says {claim['events']} events in "
                f"{claim['rows']} rows, the table holds {found[sequence]}"
            )
        if int(claim["checksum"]) != checksums[sequence]:
            yield (
                f"{table}: the offsets of batch {sequence} add up to "
                f"{checksums[sequence]}, its checksum is {claim['checksum']}"
            )


def _broken_positions(
    connection: Connection[TupleRow], pipeline: AuditedPipeline, output: AuditedOutput
) -> Iterator[str]:
    doubled = _OUTPUTS["doubled_positions"].format(table=output.identifier)
    for row in fetch(connection, doubled, pipeline=pipeline.name):
        yield (
            f"{output.table}: {row['topic']}[{row['partition']}] offset "
            f"{row['kafka_offset']} is there {row['rows']} times"
        )
    twice = _OUTPUTS["settled_twice"].format(table=output.identifier)
    for row in fetch(connection, twice, pipeline=pipeline.name):
        yield (
            f"{output.table}: {row['topic']}[{row['partition']}] offset "
            f"{row['kafka_offset']} is there, and is {row['fate']} as well"
        )
