"""Compares the seen-ID catalog with the batches: it must have every committed ID.

A driver forgets a whole bucket once the watermark has passed its horizon, so IDs in old
buckets cannot be counted any more. If an output appends the events with their times,
its rows say how many IDs each batch owes to each bucket that still exists. Otherwise a
batch is checkable only while none of its buckets can have been forgotten.

A batch that corrects events has IDs that are in the catalog already. It may have filed
them under a later bucket than the events' own, and the rows that it replaced prove
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt
from psycopg import Connection, sql
from psycopg.rows import DictRow, TupleRow, dict_row

from tallyweir.sinks.postgres.audit.audited_databases import AuditedDatabases
from tallyweir.sinks.postgres.audit.checks.branches import BranchFindings
from tallyweir.sinks.postgres.audit.checks.ledger_ranges import (
    BOUNDS,
    LedgerRanges,
    read_claims,
    tallied_rows,
)
from tallyweir.sinks.postgres.audit.receipt import Check, judge, not_applicable
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    fetch,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.seen_ids.chunk import share_passes

_CATALOG = load_statements("tallyweir.sinks.postgres.audit", "catalog.sql")
_OUTPUTS = load_statements("tallyweir.sinks.postgres.ledger", "outputs.sql")

#: How many rows the server sends at a time; one run may take megabytes.
_RUNS_FETCHED = 20


@dataclass(slots=True)
class _Remembered:
    """The contents of the catalog, counted run by run."""

    runs: int = 0
    ids: int = 0
    by_batch: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    by_bucket: dict[tuple[int, int], int] = field(
        default_factory=lambda: defaultdict(int)
    )
    buckets: set[int] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)


def check_seen_ids(
    databases: AuditedDatabases,
    pipeline: AuditedPipeline,
    ranges: LedgerRanges,
    branches: BranchFindings,
) -> Check:
    """Check the catalog's order, uniqueness and counts, in the caller's snapshots."""
    connection = databases.home.connection
    if pipeline.horizon_s is None:
        return not_applicable("seen_ids", unit="IDs", why="deduplication is off")
    claims = fetch(connection, _CATALOG["claimed_ids"], pipeline=pipeline.name)
    correcting = {claim["sequence"] for claim in claims if claim["may_correct"]}
    remembered = _read_catalog(connection, pipeline, correcting)
    violations = remembered.violations + list(_overfull(remembered, claims))
    beyond = 0
    for claim in claims:
        sequence, owed = claim["sequence"], claim["ids"]
        kept = remembered.by_batch[sequence]
        if kept >= owed:
            continue
        if _may_be_forgotten(pipeline, claim):
            beyond += 1
        else:
            violations.append(
                f"the catalog holds {kept} IDs of batch {sequence}, which "
                f"committed {owed}"
            )
    violations += _short_buckets(
        databases, pipeline, ranges, branches, remembered, correcting
    )
    note = (
        f"{beyond} of {len(claims)} batches reach beyond the horizon; of them only the "
        "IDs that are still kept could be checked"
        if beyond
        else ""
    )
    return judge(
        "seen_ids",
        checked=remembered.ids,
        unit="IDs",
        violations=violations,
        note=note,
    )


def _read_catalog(
    connection: Connection[TupleRow], pipeline: AuditedPipeline, correcting: set[int]
) -> _Remembered:
    remembered = _Remembered()
    # Use a server-side cursor, because the catalog may not fit into memory. Only the
    # runs of one bucket are in memory at a time.
    with connection.cursor("seen_ids", row_factory=dict_row) as cursor:
        cursor.itersize = _RUNS_FETCHED
        cursor.execute(_CATALOG["runs"], {"pipeline": pipeline.name})
        for bucket, runs in groupby(cursor, key=itemgetter("bucket")):
            _read_bucket(remembered, bucket, list(runs), correcting)
    return remembered


def _read_bucket(
    remembered: _Remembered,
    bucket: int,
    runs: list[DictRow],
    correcting: set[int],
) -> None:
    remembered.buckets.add(bucket)
    where = f"bucket {bucket}"
    pairs = []
    batches = []
    for run in runs:
        remembered.runs += 1
        remembered.ids += run["ids"]
        fingerprints = np.frombuffer(run["fingerprints"], dtype=">u8").reshape(-1, 2)
        pairs.append(fingerprints.astype(np.uint64))
        batches.append(_batches_of(run))
        for sequence, ids in zip(*np.unique_counts(batches[-1]), strict=True):
            remembered.by_batch[int(sequence)] += int(ids)
            remembered.by_bucket[int(sequence), bucket] += int(ids)
        ends = run["fingerprints"][:16], run["fingerprints"][-16:]
        if not _is_rising(pairs[-1], batches[-1]) or ends != (
            run["first"],
            run["last"],
        ):
            remembered.violations.append(f"{_name(run)} in {where} is not sorted")
        remembered.violations += [
            f"{_name(run)} in {where} {told}" for told in _misplaced(run, pairs[-1])
        ]
    together, of_batch = np.concatenate(pairs), np.concatenate(batches)
    order = np.lexsort((of_batch, together[:, 1], together[:, 0]))
    together, of_batch = together[order], of_batch[order]
    is_repeat = (together[1:] == together[:-1]).all(axis=1)
    # A batch may correct earlier ones, but two of its tasks never keep the same ID.
    may_repeat = np.isin(of_batch[1:], list(correcting))
    may_repeat &= of_batch[1:] != of_batch[:-1]
    repeated = int((is_repeat & ~may_repeat).sum())
    if repeated:
        remembered.violations.append(f"{repeated} IDs are twice in {where}")


def _batches_of(run: DictRow) -> npt.NDArray[np.int64]:
    """Return the batch of each ID of a run or a chunk."""
    if run["sequences"] is None:
        return np.full(run["ids"], run["sequence"], dtype=np.int64)
    counted = np.frombuffer(run["sequences"], dtype=">u4").astype(np.int64)
    return counted + np.int64(run["oldest_sequence"])


def _name(run: DictRow) -> str:
    if run["sequences"] is None:
        return f"the run of batch {run['sequence']}"
    return f"chunk {run['chunk']}"


def _is_rising(pairs: npt.NDArray[np.uint64], batches: npt.NDArray[np.int64]) -> bool:
    """Tell whether IDs are sorted, and entries of one ID sorted by batch."""
    keys = (*pairs.T, batches)
    rises = np.zeros(len(pairs) - 1, dtype=np.bool_)
    for key in reversed(keys):
        rises = (key[:-1] < key[1:]) | ((key[:-1] == key[1:]) & rises)
    return bool(rises.all())


def _misplaced(run: DictRow, pairs: npt.NDArray[np.uint64]) -> Iterator[str]:
    """Say why a driver would not find some of a chunk's IDs."""
    if run["sequences"] is None:
        return
    width = (1 << 64) // run["chunks"]
    ends = int(pairs[0, 0]), int(pairs[-1, 0])
    if {run["chunk"]} != {end // width for end in ends}:
        yield "has IDs of another chunk"
    elif not share_passes(run["filter"], *pairs.T, count=run["chunks"]):
        yield "has a filter that does not let its own IDs pass"


def _overfull(remembered: _Remembered, claims: list[DictRow]) -> Iterator[str]:
    owed = {claim["sequence"]: claim["ids"] for claim in claims}
    for sequence, kept in sorted(remembered.by_batch.items()):
        if kept > owed.get(sequence, 0):
            yield (
                f"the catalog holds {kept} IDs of batch {sequence}, which committed "
                f"{owed.get(sequence, 0)}"
            )


def _may_be_forgotten(pipeline: AuditedPipeline, claim: DictRow) -> bool:
    """Tell whether an event of the batch may have been in a forgotten bucket.

    A batch accepts events down to the horizon behind the watermark at its start. If
    there was no watermark, it accepts events of any age.
    """
    forgotten_before_s = pipeline.forgotten_before_s
    if forgotten_before_s is None or pipeline.horizon_s is None:
        return False
    if claim["watermark_before_s"] is None:
        return True
    oldest_s: int = claim["watermark_before_s"] - pipeline.horizon_s
    return oldest_s < forgotten_before_s


def _short_buckets(  # noqa: PLR0913, PLR0917 - compares all of them
    databases: AuditedDatabases,
    pipeline: AuditedPipeline,
    ranges: LedgerRanges,
    branches: BranchFindings,
    remembered: _Remembered,
    correcting: set[int],
) -> Iterator[str]:
    """Compare the buckets that must still exist with the rows of an append output."""
    output, bucket_min = (
        _dated_output(databases, pipeline),
        pipeline.forgotten_before_s,
    )
    if output is None or bucket_min is None:
        return
    appended = _bucketed_rows(databases, pipeline, output, ranges, bucket_min)
    claims = read_claims(databases.home.connection, pipeline.name, output)
    # If an output has a condition, or rows of it were replaced, it shows only a part of
    # a batch's events.
    incomplete = {claim["sequence"] for claim in claims if claim["is_conditional"]}
    incomplete |= branches.pending_sequences
    incomplete |= _corrected_batches(databases, pipeline, output, ranges)
    for (sequence, bucket), ids in sorted(appended.items()):
        if sequence in correcting:
            continue
        kept = remembered.by_bucket[sequence, bucket]
        if kept < ids or (kept > ids and sequence not in incomplete):
            yield (
                f"bucket {bucket} holds {kept} IDs of batch {sequence}, "
                f"{output.table} has {ids} of its events"
            )
    for sequence in sorted(correcting):
        ids = sum(n for (of, _), n in appended.items() if of == sequence)
        kept = sum(
            n
            for (of, bucket), n in remembered.by_bucket.items()
            if of == sequence and bucket >= bucket_min
        )
        if kept < ids:
            yield (
                f"the buckets since {bucket_min} hold {kept} IDs of batch {sequence}, "
                f"{output.table} has {ids} of its events"
            )


def _bucketed_rows(
    databases: AuditedDatabases,
    pipeline: AuditedPipeline,
    output: AuditedOutput,
    ranges: LedgerRanges,
    bucket_min: int,
) -> dict[tuple[int, int], int]:
    """Count an output's events by batch and bucket."""
    statement = _CATALOG["bucketed_rows"].format(
        table=output.identifier,
        event_time=sql.Identifier(pipeline.event_time),
        bounds=BOUNDS,
    )
    appended: dict[tuple[int, int], int] = defaultdict(int)
    for database in databases.of(output):
        for row in database.fetch(
            statement,
            bucket_seconds=pipeline.bucket_seconds,
            bucket_min=bucket_min,
            **ranges.parameters,
        ):
            appended[row["sequence"], row["bucket"]] += row["ids"]
    return appended


def _corrected_batches(
    databases: AuditedDatabases,
    pipeline: AuditedPipeline,
    output: AuditedOutput,
    ranges: LedgerRanges,
) -> set[int]:
    """Return the batches some of whose rows in an output were replaced by upserts."""
    replaced = tallied_rows(_OUTPUTS["replaced_rows"])
    found = databases.home.fetch(
        replaced,
        pipeline=pipeline.name,
        output_table=output.table,
        **ranges.parameters,
    )
    return {row["sequence"] for row in found}


def _dated_output(
    databases: AuditedDatabases, pipeline: AuditedPipeline
) -> AuditedOutput | None:
    """Find an append output that has the event time in all of its databases."""
    for output in pipeline.appends:
        kinds = {
            database.columns(output.identifier).get(pipeline.event_time)
            for database in databases.of(output)
        }
        if all(kind is not None and kind.startswith("timestamp") for kind in kinds):
            return output
    return None
