"""Compares the rows of append outputs with the ledger, position by position.

Every committed event is one row of every append output without a condition, because
such an output refuses nothing. For an output with a condition, the ledger records what
it took of each batch. So these rules hold for each output, over all its databases::

    rows in a range == the range's committed events; with a condition, not more
    rows of a batch == the events that it says it took
    sum of the offsets of a batch's rows == the batch's checksum, or its own
    no position twice, none outside of the ranges, none that was put aside as well
        or that an upsert has replaced
    rows of a batch in one database == rows that its markers there count

Rows that an upsert has replaced or that were erased count as settled, and must not be
present again. The last rule shows that each row is still in the database that it was
published in.

Rows of one output may be in several databases, while what was put aside is in the home
only. So each database reports the positions that it has taken, 64 to a number, and this
module merges the numbers to find positions that are taken twice.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import combinations, groupby

from psycopg import Connection, sql
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import (
    AuditedDatabase,
    AuditedDatabases,
)
from tallyweir.sinks.postgres.audit.checks.branches import BranchFindings
from tallyweir.sinks.postgres.audit.checks.ledger_ranges import (
    LedgerRanges,
    read_claims,
    tallied_rows,
)
from tallyweir.sinks.postgres.audit.fate import PUT_ASIDE
from tallyweir.sinks.postgres.audit.receipt import Check, judge, not_applicable
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    accepted_losses,
    fetch,
    read_positions,
)
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.offsets import TopicPartition

_OUTPUTS = load_statements("tallyweir.sinks.postgres.ledger", "outputs.sql")
_POSITION_COLUMNS = ["kafka_topic", "kafka_partition", "kafka_offset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowsBeyond:
    """Rows after the position in the home's snapshot; perhaps of a later batch."""

    where: TopicPartition
    highest: int
    violation: str


@dataclass(slots=True)
class _Tally:
    """Counts of one output, over its databases."""

    by_range: dict[tuple[int, TopicPartition], int] = field(
        default_factory=lambda: defaultdict(int)
    )
    by_batch: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    checksums: dict[int, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(slots=True)
class AppendedRows:
    """The rows of the append outputs, and the rules that they break."""

    outputs: int = 0
    checked: int = 0
    violations: list[str] = field(default_factory=list)
    #: Rows by database and batch, over all append outputs.
    by_database: dict[tuple[str, int], int] = field(
        default_factory=lambda: defaultdict(int)
    )
    beyond: list[_RowsBeyond] = field(default_factory=list)


def count_appended_rows(
    databases: AuditedDatabases,
    pipeline: AuditedPipeline,
    ranges: LedgerRanges,
    branches: BranchFindings,
) -> AppendedRows:
    """Count the rows of all append outputs, inside the caller's snapshots.

    Counts nothing if tasks copy rows at least once: ``check_copied_rows`` does that.
    """
    if pipeline.guarantee is not Guarantee.EXACTLY_ONCE:
        return AppendedRows(outputs=0)
    rows = AppendedRows(outputs=len(pipeline.appends))
    for output, claims in readable_appends(databases, pipeline, rows.violations):
        tally = _count(databases, pipeline.name, output, ranges, rows)
        rows.violations += _broken_ranges(output, tally, ranges, claims, branches)
        rows.violations += _broken_claims(output, tally, claims, branches)
        rows.violations += find_collisions(databases, pipeline.name, output, ranges)
    return rows


def check_append_outputs(
    databases: AuditedDatabases, pipeline: AuditedPipeline, rows: AppendedRows
) -> Check:
    """Judge the counts after the snapshots have ended.

    Rows after the position in the home's snapshot may belong to a batch that was
    published before the other database was read, so compare them with the current
    position.
    """
    if not rows.outputs:
        return not_applicable(
            "append_outputs", unit="rows", why="the pipeline appends nothing"
        )
    positions = (
        read_positions(databases.home.connection, pipeline.name) if rows.beyond else {}
    )
    beyond = [
        found.violation
        for found in rows.beyond
        if found.highest >= positions.get(found.where, 0)
    ]
    return judge(
        "append_outputs",
        checked=rows.checked,
        unit="rows",
        violations=[*rows.violations, *beyond],
        note=accepted_losses(pipeline.appends),
    )


def find_miscounted_markers(
    databases: AuditedDatabases,
    pipeline: AuditedPipeline,
    rows: AppendedRows,
    branches: BranchFindings,
) -> Iterator[str]:
    """Compare the rows that a batch brought into a database with its markers there.

    Skips the home, because rows that a batch writes there without a branch have no
    marker.
    """
    former = {
        row["sequence"]
        for row in fetch(
            databases.home.connection,
            _OUTPUTS["batches_with_former_outputs"],
            pipeline=pipeline.name,
            outputs=[output.table for output in pipeline.outputs],
        )
    }
    for database in databases.beside_home:
        marked = branches.marked_rows(database.name)
        windows, is_exact = _window_rows(databases, pipeline, database.name)
        found = {
            sequence: count
            for (name, sequence), count in rows.by_database.items()
            if name == database.name
        }
        given_up = max(
            (
                output.owing_from
                for output in pipeline.outputs
                if database.name in output.databases
            ),
            default=1,
        )
        for sequence in sorted({*marked, *found}):
            # Batches after the home's snapshot were not counted here.
            if sequence > pipeline.last_sequence:
                continue
            held = found.get(sequence, 0) + (
                windows.get(sequence, 0) if sequence in marked else 0
            )
            said = marked.get(sequence, 0)
            is_whole = is_exact and sequence not in former and sequence >= given_up
            if held > said or (held < said and is_whole):
                yield (
                    f"{database.name}: the markers of batch {sequence} count {said} "
                    f"rows, its tables took {held}"
                )


def _window_rows(
    databases: AuditedDatabases, pipeline: AuditedPipeline, name: str
) -> tuple[Mapping[int, int], bool]:
    """Return the window rows per batch in a database, and whether these are all.

    The ledger counts the rows of a sharded output only as a sum over its databases.
    """
    here = [output for output in pipeline.windows if name in output.databases]
    whole = [output.table for output in here if output.databases == (name,)]
    rows: dict[int, int] = defaultdict(int)
    for row in fetch(
        databases.home.connection,
        _OUTPUTS["window_rows"],
        pipeline=pipeline.name,
        windows=whole,
    ):
        rows[row["sequence"]] += row["rows"]
    return rows, len(whole) == len(here)


def readable_appends(
    databases: AuditedDatabases, pipeline: AuditedPipeline, violations: list[str]
) -> Iterator[tuple[AuditedOutput, list[DictRow]]]:
    """Yield the append outputs whose rows have positions, with their batches' claims.

    Args:
        databases: The pipeline's databases, in the caller's snapshots.
        pipeline: The pipeline.
        violations: Gets the columns that the other tables lack, if they owe rows.
    """
    for output in pipeline.appends:
        claims = read_claims(databases.home.connection, pipeline.name, output)
        missing = [
            f"{output.table}{one.place}: the table has no column {columns}"
            for one in databases.of(output)
            if (columns := one.missing(output, _POSITION_COLUMNS))
        ]
        if not missing:
            yield output, claims
        elif any(claim["sequence"] >= output.owing_from for claim in claims):
            violations += missing


def rows_ever(output: AuditedOutput) -> sql.Composed:
    """Return all rows an output at home has ever held, usable in place of its table."""
    return _OUTPUTS["rows_ever"].format(
        table=output.identifier, replaced=_OUTPUTS["replaced_rows"]
    )


def _count(
    databases: AuditedDatabases,
    pipeline: str,
    output: AuditedOutput,
    ranges: LedgerRanges,
    rows: AppendedRows,
) -> _Tally:
    tally = _Tally()
    values = {**ranges.parameters, "pipeline": pipeline, "output_table": output.table}
    for database in databases.of(output):
        source = rows_ever(output) if database.name == HOME else output.identifier
        statement = tallied_rows(source)
        for row in database.fetch(statement, **values):
            rows.checked += row["found"]
            where = TopicPartition(row["topic"], row["partition"])
            sequence = row["sequence"]
            if sequence is None:
                _note_stray(rows, output, database, where, row, ranges)
                continue
            tally.by_range[sequence, where] += row["found"]
            tally.by_batch[sequence] += row["found"]
            tally.checksums[sequence] += int(row["checksum"])
            rows.by_database[database.name, sequence] += row["found"]
    return tally


def _note_stray(  # noqa: PLR0913, PLR0917 - the message names all of it
    rows: AppendedRows,
    output: AuditedOutput,
    database: AuditedDatabase,
    where: TopicPartition,
    row: DictRow,
    ranges: LedgerRanges,
) -> None:
    """Keep rows that lie in no batch, or in one that the snapshot does not have."""
    next_offset = ranges.next_offsets.get(where, 0)
    violation = (
        f"{output.table}{database.place}: {row['found']} rows of {where} lie in no "
        f"batch, offsets {row['lowest']} to {row['highest']}"
    )
    if row["highest"] >= next_offset:
        violation += f", though the next offset to read is {next_offset}"
    if database.name != HOME and row["lowest"] >= next_offset:
        rows.beyond.append(
            _RowsBeyond(where=where, highest=row["highest"], violation=violation)
        )
    else:
        rows.violations.append(violation)


def _broken_ranges(
    output: AuditedOutput,
    tally: _Tally,
    ranges: LedgerRanges,
    claims: list[DictRow],
    branches: BranchFindings,
) -> Iterator[str]:
    # A batch that predates the output owes it nothing.
    owing = {claim["sequence"] for claim in claims}
    conditional = {claim["sequence"] for claim in claims if claim["is_conditional"]}
    incomplete = conditional | branches.pending_sequences
    for sequence, where, committed in sorted(ranges.committed_by_range()):
        if sequence < output.owing_from:
            continue
        claimed = committed if sequence in owing else 0
        found = tally.by_range.get((sequence, where), 0)
        if found > claimed or (found < claimed and sequence not in incomplete):
            yield (
                f"{output.table}: {found} rows of batch {sequence} on {where}, "
                f"the ledger counts {claimed}"
            )


def _broken_claims(
    output: AuditedOutput,
    tally: _Tally,
    claims: list[DictRow],
    branches: BranchFindings,
) -> Iterator[str]:
    """Compare each batch's totals for this output with the rows that are present."""
    pending = branches.pending_sequences
    for claim in claims:
        sequence = claim["sequence"]
        if sequence < output.owing_from:
            continue
        found = tally.by_batch.get(sequence, 0)
        if sequence in pending and found <= claim["rows"] == claim["events"]:
            continue
        if not claim["events"] == claim["rows"] == found:
            yield (
                f"{output.table}: batch {sequence} says {claim['events']} events in "
                f"{claim['rows']} rows, the table holds {found}"
            )
        checksum = tally.checksums.get(sequence, 0)
        if int(claim["checksum"]) != checksum:
            yield (
                f"{output.table}: the offsets of batch {sequence} add up to "
                f"{checksum}, its checksum is {claim['checksum']}"
            )


_COLLISIONS = load_statements("tallyweir.sinks.postgres.audit.checks", "collisions.sql")

_BLOCK_BITS = 64

#: How many numbers a server sends at a time.
_BLOCKS_FETCHED = 10_000

#: Statements that find rows which must be absent, and why each must be.
_GONE = {
    "replaced_positions": "replaced by an upsert",
    "erased_positions": "erased",
}

#: Topic, partition, number of the block, the place that reports it, and its bits.
Block = tuple[str, int, int, str, int]


def find_collisions(
    databases: AuditedDatabases,
    pipeline: str,
    output: AuditedOutput,
    ranges: LedgerRanges,
) -> Iterator[str]:
    """Name every position that is taken twice, inside the caller's snapshots."""
    doubled = _COLLISIONS["doubled_positions"].format(table=output.identifier)
    for database in databases.of(output):
        for row in database.fetch(doubled, read_topics=ranges.read_topics):
            yield (
                f"{output.table}: {row['topic']}[{row['partition']}] offset "
                f"{row['kafka_offset']} is there {row['rows']} times"
            )
    with ExitStack() as cursors:
        streams = [
            _stream(
                cursors,
                database.connection,
                _COLLISIONS["taken_positions"].format(table=output.identifier),
                label=f"in {database.name}",
                read_topics=ranges.read_topics,
            )
            for database in databases.of(output)
        ]
        streams += [
            _stream(
                cursors,
                databases.home.connection,
                _COLLISIONS[positions],
                label=label,
                pipeline=pipeline,
                output_table=output.table,
            )
            for positions, label in _GONE.items()
        ]
        streams += [
            _stream(
                cursors,
                databases.home.connection,
                _COLLISIONS["positions_put_aside"],
                label=side.called,
                pipeline=pipeline,
                kind=side.name,
            )
            for side in PUT_ASIDE
        ]
        for where, offset, former, latter in shared_positions(streams):
            # Another check finds events that were put aside twice.
            if former.startswith("in "):
                there = former if latter.startswith("in ") else "there"
                yield (
                    f"{output.table}: {where} offset {offset} is {there}, and is "
                    f"{latter} as well"
                )


def _stream(
    cursors: ExitStack,
    connection: Connection[TupleRow],
    statement: sql.SQL | sql.Composed,
    *,
    label: str,
    **values: object,
) -> Iterator[Block]:
    cursor = cursors.enter_context(connection.cursor(label))
    cursor.itersize = _BLOCKS_FETCHED
    cursor.execute(statement, values)
    return (
        (topic, partition, block, label, taken)
        for topic, partition, block, taken in cursor
    )


def shared_positions(
    streams: list[Iterator[Block]],
) -> Iterator[tuple[str, int, str, str]]:
    """Yield each position that two of the ordered streams have taken.

    Returns:
        Partition, offset, and the labels of the two streams, a database's first.
    """
    for place, group in groupby(heapq.merge(*streams), key=lambda block: block[:3]):
        topic, partition, block = place
        # Labels of databases begin with "in", which sorts after the labels of events
        # that were put aside; the row comes first in the message.
        found = sorted(group, key=lambda entry: not entry[3].startswith("in "))
        for former, latter in combinations(found, 2):
            both = former[4] & latter[4]
            for bit in range(_BLOCK_BITS) if both else ():
                if both >> bit & 1:
                    offset = block * _BLOCK_BITS + bit
                    yield f"{topic}[{partition}]", offset, former[3], latter[3]
