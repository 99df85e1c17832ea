"""Checks that the databases account for every record once.

The home is read from one snapshot, and every other database from a later snapshot of
its own. Differences that work in between could explain are checked again.

Each check recomputes a rule of the protocol from the rows themselves. Constraints
enforce many of the rules already, but a restore, a hand-written UPDATE or a bug can
break any of them. The rules::

    range.from_offset == former range's until_offset     offset_ranges
    sequences == 1..last_sequence                        sequences
    read == committed + duplicate + dead + late
            + expired + filtered                         conservation
    rows put aside == the ledger's counts                side_tables
    rows appended == the ledger's counts and checksum    append_outputs
    rows that repeat others, at least once               repeated_rows, counted
    messages published == waiting + sent                 outbox, where there is one
    rows of functions == the ledger's counts             stateful_outputs, where any
    IDs remembered == IDs committed                      seen_ids
    epochs claimed and never falling                     epochs
    watermark never falling                              watermark
    branches decided == branches committed               branches
    each group of a window in one database               window_groups
    rows shown == state of windows, or digests kept      row_values

The first four, ``epochs`` and ``watermark`` are checked here, the others by modules of
``checks``: ``stateful_outputs`` in ``keyed_state``, ``repeated_rows`` in
``copied_rows``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from psycopg import Connection, sql
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import (
    NO_DATABASES,
    connect_databases,
    databases_of,
)
from tallyweir.sinks.postgres.audit.checks.appended_rows import (
    check_append_outputs,
    count_appended_rows,
    find_miscounted_markers,
)
from tallyweir.sinks.postgres.audit.checks.branches import (
    check_branches,
    read_branches,
    read_used_databases,
)
from tallyweir.sinks.postgres.audit.checks.copied_rows import check_copied_rows
from tallyweir.sinks.postgres.audit.checks.keyed_state import check_stateful_outputs
from tallyweir.sinks.postgres.audit.checks.ledger_ranges import read_ledger_ranges
from tallyweir.sinks.postgres.audit.checks.outbox_rows import check_outbox
from tallyweir.sinks.postgres.audit.checks.row_values import check_row_values
from tallyweir.sinks.postgres.audit.checks.seen_ids import check_seen_ids
from tallyweir.sinks.postgres.audit.checks.window_groups import check_window_groups
from tallyweir.sinks.postgres.audit.fate import PUT_ASIDE
from tallyweir.sinks.postgres.audit.receipt import Check, Receipt, Totals, judge
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.foreign_code import keep_tables
from tallyweir.sinks.protocol.guarantee import Guarantee

_LEDGER = load_statements("tallyweir.sinks.postgres.ledger", "ledger.sql")
_CONSERVATION = load_statements("tallyweir.sinks.postgres.audit", "conservation.sql")
_SIDE_TABLES = load_statements("tallyweir.sinks.postgres.audit", "side_tables.sql")


def verify(
    connection: Connection[TupleRow],
    pipeline: str,
    databases: Mapping[str, str] = NO_DATABASES,
) -> Receipt:
    """Check every rule of the ledger against the tables in all databases.

    Drivers may publish meanwhile. ``verify`` neither sees nor waits for what they
    commit after the home's snapshot, and it reports a branch that is decided but not
    yet committed as in doubt.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline's name.
        databases: Connection strings of the other databases, by name; extra names are
            allowed.

    Raises:
        ConfigurationError: No such pipeline, a database that is not in ``databases``,
            or a table that may not be read.
        RetryableError: A server went away or does not respond.
    """
    copied: tuple[Check, ...] = ()
    with ExitStack() as opened:
        with snapshot(connection, doing="verifying"):
            audited = read_pipeline(connection, pipeline)
            keep_tables(connection, audited)
            size = fetch_one(connection, _LEDGER["ledger_size"], pipeline=pipeline)
            ledger_checks = (
                _check_offset_ranges(connection, pipeline, size),
                _check_sequences(connection, pipeline, size["batches"]),
                _check_conservation(connection, pipeline, size["ranges"]),
                _check_side_tables(connection, audited),
            )
            outbox = check_outbox(connection, audited)
            stateful = check_stateful_outputs(connection, audited)
            ranges = read_ledger_ranges(connection, pipeline)
            names = databases_of(audited) | read_used_databases(connection, pipeline)
            parts = connect_databases(opened, connection, names, databases)
            with parts.snapshots(audited):
                branches = read_branches(parts, audited)
                rows = count_appended_rows(parts, audited, ranges, branches)
                if audited.guarantee is Guarantee.AT_LEAST_ONCE:
                    copied = check_copied_rows(parts, audited, ranges)
                miscounted = list(
                    find_miscounted_markers(parts, audited, rows, branches)
                )
                seen_ids = check_seen_ids(parts, audited, ranges, branches)
                groups = check_window_groups(parts, audited)
                values, outputs = check_row_values(parts, audited, ranges, branches)
            order_checks = (
                _check_epochs(connection, pipeline, size["batches"]),
                _check_watermark(connection, pipeline, size["batches"]),
            )
            totals = read_totals(connection, pipeline)
        with parts.now(audited):
            appended = copied or (check_append_outputs(parts, audited, rows),)
            decided = check_branches(parts, audited, branches, miscounted)
    return Receipt(
        pipeline=pipeline,
        checks=(
            *(*ledger_checks, *appended, *outbox, *stateful),
            *(seen_ids, *order_checks, decided, groups, values),
        ),
        totals=totals,
        guarantee=audited.guarantee,
        databases=tuple(parts.by_name),
        outputs=outputs,
    )


def _check_offset_ranges(
    connection: Connection[TupleRow], pipeline: str, size: DictRow
) -> Check:
    ranges, ends = (
        fetch(
            connection, _LEDGER[name].format(steps=_LEDGER["steps"]), pipeline=pipeline
        )
        for name in ("broken_ranges", "broken_ends")
    )
    violations = [_broken_range(row) for row in ranges]
    violations += [
        f"{row['topic']}[{row['partition']}] stands at "
        f"{'no offset' if row['next_offset'] is None else row['next_offset']}, "
        f"the ledger ends at {row['until_offset']} with batch {row['sequence']}"
        for row in ends
    ]
    moved = {
        "were given up by accept-gap": size["offsets_given_up"],
        "were skipped by offsets reset": size["offsets_skipped"],
        "were to be read again by offsets reset": size["offsets_read_again"],
    }
    return judge(
        "offset_ranges",
        checked=size["ranges"],
        unit="ranges",
        violations=violations,
        note="; ".join(f"{n} offsets {how}" for how, n in moved.items() if n),
    )


def _broken_range(row: DictRow) -> str:
    found, expected = row["from_offset"], row["expected"]
    where = f"on {row['topic']}[{row['partition']}]"
    if found > expected:
        return (
            f"offset gap {expected}..{found} {where} "
            f"after batch {row['former_sequence']}"
        )
    return f"offset overlap {found}..{expected} {where} in batch {row['sequence']}"


def _check_sequences(
    connection: Connection[TupleRow], pipeline: str, batches: int
) -> Check:
    violations = [
        # The row that ends the series lies one past last_sequence.
        f"batches {row['expected']} to {row['found'] - 1} are missing"
        if row["found"] > row["expected"]
        else f"batch {row['expected'] - 1} is beyond the pipeline's last sequence "
        f"{row['found'] - 1}"
        for row in fetch(connection, _LEDGER["broken_sequences"], pipeline=pipeline)
    ]
    return judge("sequences", checked=batches, unit="batches", violations=violations)


def _check_conservation(
    connection: Connection[TupleRow], pipeline: str, ranges: int
) -> Check:
    violations = [
        f"batch {row['sequence']} on {row['topic']}[{row['partition']}]: "
        f"{row['read']} read, {row['accounted']} accounted for"
        for row in fetch(
            connection, _CONSERVATION["broken_conservation"], pipeline=pipeline
        )
    ]
    return judge("conservation", checked=ranges, unit="ranges", violations=violations)


def _check_side_tables(
    connection: Connection[TupleRow], pipeline: AuditedPipeline
) -> Check:
    violations: list[str] = []
    for side in PUT_ASIDE:
        statement = _SIDE_TABLES["broken_side_table"].format(
            table=sql.Identifier(side.name), count=sql.Identifier(side.fate.value)
        )
        violations += [
            _broken_side_table(side.name, row)
            for row in fetch(connection, statement, pipeline=pipeline.name)
        ]
    dropping = [output.table for output in pipeline.outputs if output.drops_late]
    violations += [
        f"late_event: {row['found']} rows of batch {row['sequence']} for "
        f"{row['output_table']}, the ledger counts {row['claimed']}"
        for row in fetch(
            connection,
            _SIDE_TABLES["broken_late_events"],
            pipeline=pipeline.name,
            dropping=dropping,
        )
    ]
    size = fetch_one(
        connection, _SIDE_TABLES["side_table_rows"], pipeline=pipeline.name
    )
    note = f"late events of {', '.join(dropping)} are not kept" if dropping else ""
    return judge(
        "side_tables",
        checked=size["rows"],
        unit="rows",
        violations=violations,
        note=note,
    )


def _broken_side_table(table: str, row: DictRow) -> str:
    where = f"batch {row['sequence']} on {row['topic']}[{row['partition']}]"
    if row["found"] != row["claimed"]:
        return (
            f"{table}: {row['found']} rows of {where}, "
            f"the ledger counts {row['claimed']}"
        )
    return f"{table}: rows of {where} lie outside of the batch's offsets"


def _check_epochs(
    connection: Connection[TupleRow], pipeline: str, batches: int
) -> Check:
    violations = [
        f"batch {row['sequence']} of epoch {row['epoch']} follows epoch "
        f"{row['former_epoch']}"
        if row["claimed"]
        else f"batch {row['sequence']} has epoch {row['epoch']}, never claimed"
        for row in fetch(connection, _LEDGER["broken_epochs"], pipeline=pipeline)
    ]
    return judge("epochs", checked=batches, unit="batches", violations=violations)


def _check_watermark(
    connection: Connection[TupleRow], pipeline: str, batches: int
) -> Check:
    place = ("before", "after", "since")
    violations = [
        f"the watermark went back from {row['former']} to "
        f"{row['watermark'] or 'unknown'} {place[row['kind']]} batch {row['sequence']}"
        for row in fetch(connection, _LEDGER["broken_watermarks"], pipeline=pipeline)
    ]
    return judge("watermark", checked=batches, unit="batches", violations=violations)


def read_totals(connection: Connection[TupleRow], pipeline: str) -> Totals:
    """Add up the ledger, inside the caller's snapshot."""
    size = fetch_one(connection, _LEDGER["ledger_size"], pipeline=pipeline)
    sums = fetch_one(connection, _LEDGER["totals"], pipeline=pipeline)
    reasons = fetch(connection, _LEDGER["dead_by_reason"], pipeline=pipeline)
    return Totals(
        **sums,
        dead_by_reason={row["reason"]: row["events"] for row in reasons},
        batches=size["batches"],
        drivers=size["drivers"],
    )
