"""Finds what became of an event: every trace that its ID left, in all databases.

An ID may have arrived several times; the Kafka position identifies each copy. The
seen-ID catalog has IDs without positions, so its entries are reported separately.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter

from psycopg import Connection, sql
from psycopg.rows import DictRow, TupleRow

from tallyweir.sinks.postgres.audit.audited_databases import (
    NO_DATABASES,
    AuditedDatabase,
    AuditedDatabases,
    connect_databases,
    databases_of,
)
from tallyweir.sinks.postgres.audit.checks.branches import (
    DecidedBranch,
    read_branches_of,
    read_marked,
    read_unresolved,
)
from tallyweir.sinks.postgres.audit.fate import LATE_EVENTS, PUT_ASIDE, Fate
from tallyweir.sinks.postgres.audit.why.catalog_search import (
    ErasedBy,
    FingerprintProbe,
    find_erasures,
    find_in_catalog,
)
from tallyweir.sinks.postgres.audit.why.dead_letters import (
    IS_ERASED,
    Redrive,
    find_redrives,
    letters_of,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
    read_positions,
    snapshot,
)
from tallyweir.sinks.postgres.ledger.batch_runs import read_input_names
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.guarantee import Guarantee
from tallyweir.sinks.protocol.offsets import TopicPartition, parse_position

_EXPLANATION = load_statements("tallyweir.sinks.postgres.audit.why", "explanation.sql")
_LETTERS_WITHOUT_ID = _EXPLANATION["letters_without_id"].format(is_erased=IS_ERASED)

#: The columns that describe a copy; each table has some of them.
_TOLD = ("event_time", "kafka_timestamp", "reason", "detail", "key", "payload", "run")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedBatch:
    """The batch that decided the fate of a copy."""

    sequence: int
    epoch: int
    published_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One copy of the event, in one table.

    ``batch`` is None if a row of an output lies in no batch: either another program
    wrote it, or ``verify`` will report it.
    """

    fate: Fate
    position: TopicPartition
    offset: int
    batch: PublishedBatch | None
    #: The output that took the copy, or for which it was late.
    output: str | None = None
    #: The database that has it, and the branches that brought the batch's rows there.
    database: str = HOME
    branches: tuple[str, ...] = ()
    event_time: datetime | None = None
    kafka_timestamp: datetime | None = None
    reason: str | None = None
    detail: str | None = None
    key: bytes | None = None
    payload: bytes | None = None
    #: For a row that is gone: the batch that replaced it, and the name of its run.
    replaced_in: PublishedBatch | None = None
    run: str | None = None
    #: For a dead letter: every redrive of it.
    redrives: tuple[Redrive, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """An output that did not take a copy, while another output took it.

    Attributes:
        condition: The output's condition when the batch was published.
    """

    position: TopicPartition
    offset: int
    sequence: int
    output: str
    condition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogHit:
    """The ID in the seen-ID catalog.

    An upsert that corrects the event adds another entry; the newest entry counts.

    Attributes:
        bucket: The start of the bucket with the event's time, in seconds since 1970.
        bucket_seconds: The length of the bucket.
        windows: The window outputs to which the batch added events.
    """

    bucket: int
    bucket_seconds: int
    batch: PublishedBatch | None
    windows: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedToWindows:
    """A batch by which windows have an event whose ID no table has.

    Attributes:
        batch: The batch.
        windows: The window outputs to which it added events.
        span: The event's time is within, in seconds since 1970; None if all that is
            known is that the batch has read its position.
    """

    batch: PublishedBatch
    windows: tuple[str, ...]
    span: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything that is known of an ID, and what cannot be known.

    Attributes:
        sightings: Copies in the order of batches, then of positions.
        searched: The places that were searched, as a person would name them.
        letters_without_id: Dead letters whose ID could not be read.
        forgotten_before_s: IDs of events older than this, in seconds since 1970, may
            have been forgotten; None if no ID has been.
        positions: Where the pipeline stands, to compute what it has not read yet.
        awaited: Decided branches that are not committed yet; their rows are unseen.
        id_has_source: Whether an ID identifies an event only with its source.
        left_out: Outputs whose condition was not true of a copy that others took.
        id_columns: The columns with the IDs, or their parts; none if none have them.
        id_header: The header that carries the IDs; None if none does.
        added_at: The batch that has read the position, if that is the ID, windows took
            events of the batch, and nothing else is known of the position.
    """

    pipeline: str
    event_id: str
    sightings: tuple[Sighting, ...]
    catalog_hits: tuple[CatalogHit, ...]
    searched: tuple[str, ...]
    letters_without_id: int
    forgotten_before_s: int | None
    positions: dict[TopicPartition, int]
    awaited: tuple[DecidedBranch, ...]
    id_has_source: bool
    guarantee: Guarantee
    #: What the partitions of batch runs stand for: the name of a file, or a range.
    inputs: Mapping[TopicPartition, str]
    erased_by: tuple[ErasedBy, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    id_columns: tuple[str, ...] = ()
    id_header: str | None = None
    added_at: AddedToWindows | None = None

    @property
    def is_known(self) -> bool:
        traces = self.sightings or self.catalog_hits or self.erased_by
        return bool(traces or self.added_at)

    @property
    def in_windows_only(self) -> tuple[AddedToWindows, ...]:
        """The batches by which windows have the event, if no table has its ID."""
        fates = {sighting.fate for sighting in self.sightings}
        if fates & {Fate.COMMITTED, Fate.REPLACED}:
            return ()
        if self.added_at is not None:
            return (self.added_at,)
        return tuple(
            AddedToWindows(
                batch=hit.batch,
                windows=hit.windows,
                span=(hit.bucket, hit.bucket + hit.bucket_seconds),
            )
            for hit in self.catalog_hits
            if hit.windows and hit.batch
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searchable:
    """One part of an append output that has the ID."""

    output: AuditedOutput
    database: AuditedDatabase
    #: How its columns give the ID; None if the position is the ID.
    event_id: sql.Composable | None


def explain(
    connection: Connection[TupleRow],
    pipeline: str,
    event_id: str,
    fingerprint_probe: FingerprintProbe,
    databases: Mapping[str, str] = NO_DATABASES,
) -> Explanation:
    """Find every trace of an ID, in one snapshot of each database.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        pipeline: The pipeline's name.
        event_id: The ID as a person writes it; other types are compared as text.
        fingerprint_probe: Computes the fingerprints under which the ID may be filed.
        databases: Connection strings of the other databases, by name; extra names are
            allowed.

    Raises:
        ConfigurationError: No such pipeline, a database that is not in ``databases``,
            or a table that may not be read.
        RetryableError: A server went away or does not respond.
    """
    with ExitStack() as opened, snapshot(connection, doing="explaining an event"):
        audited = read_pipeline(connection, pipeline)
        event_id = audited.canonical_id(event_id)
        unresolved = read_unresolved(connection, pipeline)
        names = databases_of(audited) | {branch.database for branch in unresolved}
        parts = connect_databases(opened, connection, names, databases)
        with parts.snapshots(audited):
            awaited = _not_marked(parts, unresolved)
            searchable = _searchable_outputs(parts, audited)
            found = _find_committed(parts, audited, searchable, event_id)
        asked = {"pipeline": pipeline, "event_id": event_id}
        found += _find_at_home(connection, "replaced_rows", Fate.REPLACED, asked)
        found += _find_put_aside(connection, asked)
        # Messages that the relay has sent are gone from the outbox.
        found += _find_at_home(connection, "waiting_messages", Fate.COMMITTED, asked)
        redrives = find_redrives(connection, pipeline, found)
        found += letters_of(connection, pipeline, redrives, known=found)
        erased_by = find_erasures(connection, pipeline, event_id, fingerprint_probe)
        runs = find_in_catalog(connection, audited, event_id, fingerprint_probe)
        sequences = {row["sequence"] for row in [*found, *runs]} - {None}
        sequences |= {row["replaced_in"] for row in found if "replaced_in" in row}
        batches = _read_batches(connection, pipeline, sequences)
        decided = read_branches_of(connection, pipeline, sequences)
        branches = [branch for branch in decided if branch not in awaited]
        left_out = _find_left_out(
            connection, pipeline, found, searchable, {one.sequence for one in awaited}
        )
        letters = fetch_one(connection, _LETTERS_WITHOUT_ID, pipeline=pipeline)
        return Explanation(
            pipeline=pipeline,
            event_id=event_id,
            sightings=_sightings(found, batches, branches, redrives),
            catalog_hits=_catalog_hits(connection, audited, runs, batches),
            searched=_searched(audited, searchable),
            letters_without_id=letters["letters"],
            forgotten_before_s=audited.forgotten_before_s,
            positions=read_positions(connection, pipeline),
            awaited=awaited,
            id_has_source=audited.id_has_source,
            guarantee=audited.guarantee,
            inputs=read_input_names(connection, pipeline),
            erased_by=erased_by,
            left_out=left_out,
            id_columns=audited.id_columns,
            id_header=audited.id_header,
            added_at=None if found else _added_at(connection, audited, event_id),
        )


def _not_marked(
    databases: AuditedDatabases, unresolved: Iterable[DecidedBranch]
) -> tuple[DecidedBranch, ...]:
    """Return the branches whose rows are not in the snapshot of their database."""
    return tuple(
        branch
        for branch in unresolved
        if not read_marked(databases.by_name[branch.database], [branch.gid])
    )


def _searchable_outputs(
    databases: AuditedDatabases, pipeline: AuditedPipeline
) -> list[_Searchable]:
    """Return the append outputs that have the ID, with the type of its column."""
    places = [
        (output, database, database.columns(output.identifier))
        for output in pipeline.appends
        for database in databases.of(output)
    ]
    return [
        _Searchable(output=output, database=database, event_id=pipeline.id_in(types))
        for output, database, types in places
        if pipeline.id_is_position or pipeline.id_in(types) is not None
    ]


def _find_committed(
    databases: AuditedDatabases,
    pipeline: AuditedPipeline,
    searchable: Iterable[_Searchable],
    event_id: str,
) -> list[DictRow]:
    found: list[DictRow] = []
    for place in searchable:
        for row in _rows_of(place, event_id):
            batch = databases.home.fetch(
                _EXPLANATION["batch_at"], pipeline=pipeline.name, **row
            )
            found.append(
                {
                    **row,
                    "fate": Fate.COMMITTED,
                    "output": place.output.table,
                    "database": place.database.name,
                    "sequence": batch[0]["sequence"] if batch else None,
                }
            )
    return found


def _rows_of(place: _Searchable, event_id: str) -> list[DictRow]:
    """Return the positions of an ID's rows in a table."""
    table = place.output.identifier
    if place.event_id is None:
        position = parse_position(event_id)
        if position is None:
            return []
        of, offset = position
        statement = _EXPLANATION["committed_rows_by_position"].format(table=table)
        return place.database.fetch(
            statement, topic=of.topic, partition=of.partition, offset=offset
        )
    statement = _EXPLANATION["committed_rows"].format(
        table=table, event_id=place.event_id
    )
    return place.database.fetch(statement, event_id=event_id)


def _catalog_hits(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    runs: Sequence[DictRow],
    batches: Mapping[int, PublishedBatch],
) -> tuple[CatalogHit, ...]:
    windows = _windows_of(connection, pipeline.name, {run["sequence"] for run in runs})
    return tuple(
        CatalogHit(
            bucket=run["bucket"],
            bucket_seconds=pipeline.bucket_seconds,
            batch=batches.get(run["sequence"]),
            windows=windows.get(run["sequence"], ()),
        )
        for run in sorted(runs, key=itemgetter("sequence"))
    )


def _added_at(
    connection: Connection[TupleRow], pipeline: AuditedPipeline, event_id: str
) -> AddedToWindows | None:
    """Return the batch that has read a position, if windows took events of it."""
    position = parse_position(event_id) if pipeline.id_is_position else None
    if position is None:
        return None
    place, offset = position
    rows = fetch(
        connection,
        _EXPLANATION["batch_at"],
        pipeline=pipeline.name,
        topic=place.topic,
        partition=place.partition,
        offset=offset,
    )
    sequences = {row["sequence"] for row in rows}
    windows = _windows_of(connection, pipeline.name, sequences)
    batches = _read_batches(connection, pipeline.name, sequences)
    return next(
        (
            AddedToWindows(batch=batches[one], windows=windows[one], span=None)
            for one in sequences
            if one in windows and one in batches
        ),
        None,
    )


def _windows_of(
    connection: Connection[TupleRow], pipeline: str, sequences: Collection[int]
) -> dict[int, tuple[str, ...]]:
    """Return the window outputs to which batches added events."""
    windows: dict[int, tuple[str, ...]] = {}
    for row in fetch(
        connection,
        _EXPLANATION["windows_of"],
        pipeline=pipeline,
        sequences=sorted(sequences),
    ):
        had = windows.get(row["sequence"], ())
        windows[row["sequence"]] = (*had, row["output_table"])
    return windows


def _find_left_out(
    connection: Connection[TupleRow],
    pipeline: str,
    found: Iterable[DictRow],
    searchable: Iterable[_Searchable],
    unseen: Collection[int],
) -> tuple[LeftOut, ...]:
    """Find the outputs that would have the ID if their condition had been true of it.

    The search cannot judge outputs whose tables lack the ID's column, or batches that
    are ``unseen`` in some database.
    """
    taken: dict[tuple[TopicPartition, int, int], set[str]] = {}
    for row in found:
        if row["fate"] is Fate.COMMITTED and row["sequence"] is not None:
            place = TopicPartition(row["topic"], row["partition"])
            copy = place, row["offset"], row["sequence"]
            taken.setdefault(copy, set()).add(row["output"])
    looked_at = {one.output.table for one in searchable}
    taken = {copy: outputs for copy, outputs in taken.items() if copy[2] not in unseen}
    conditions = fetch(
        connection,
        _EXPLANATION["outputs_of"],
        pipeline=pipeline,
        sequences=sorted({sequence for _, _, sequence in taken}),
    )
    return tuple(
        LeftOut(
            position=place,
            offset=offset,
            sequence=sequence,
            output=row["output"],
            condition=row["condition"],
        )
        for (place, offset, sequence), outputs in sorted(taken.items())
        for row in conditions
        if row["sequence"] == sequence
        and row["output"] in looked_at
        and row["output"] not in outputs
    )


def _find_at_home(
    connection: Connection[TupleRow],
    statement: str,
    fate: Fate,
    asked: Mapping[str, str],
) -> list[DictRow]:
    rows = fetch(connection, _EXPLANATION[statement], **asked)
    return [{**row, "fate": fate} for row in rows]


def _find_put_aside(
    connection: Connection[TupleRow], asked: Mapping[str, str]
) -> list[DictRow]:
    found: list[DictRow] = []
    for side in (*PUT_ASIDE, LATE_EVENTS):
        statement = _EXPLANATION["put_aside"].format(
            table=sql.Identifier(side.name), told=side.columns
        )
        for row in fetch(connection, statement, **asked):
            # The condition explains why an event was filtered.
            detail = row.get("detail", row.get("condition"))
            output = row.get("output_table")
            found.append({**row, "fate": side.fate, "output": output, "detail": detail})
    return found


def _read_batches(
    connection: Connection[TupleRow], pipeline: str, sequences: Iterable[int]
) -> dict[int, PublishedBatch]:
    return {
        row["sequence"]: PublishedBatch(**row)
        for row in fetch(
            connection,
            _EXPLANATION["batches"],
            pipeline=pipeline,
            sequences=sorted(sequences),
        )
    }


def _sighting(
    row: DictRow,
    batches: dict[int, PublishedBatch],
    branches: Iterable[DecidedBranch],
    redrives: Iterable[Redrive],
) -> Sighting:
    database = row.get("database", HOME)
    place = (row["topic"], row["partition"], row["offset"])
    return Sighting(
        fate=row["fate"],
        position=TopicPartition(row["topic"], row["partition"]),
        offset=row["offset"],
        batch=batches.get(row["sequence"]),
        output=row["output"],
        database=database,
        replaced_in=batches.get(row.get("replaced_in", 0)),
        redrives=tuple(
            one for one in redrives if row["fate"] is Fate.DEAD and one.old == place
        ),
        branches=tuple(
            branch.branch
            for branch in branches
            if (branch.sequence, branch.database) == (row["sequence"], database)
            and row["fate"] is Fate.COMMITTED
        ),
        **{name: row.get(name) for name in _TOLD},
    )


def _sightings(
    found: Iterable[DictRow],
    batches: dict[int, PublishedBatch],
    branches: Iterable[DecidedBranch],
    redrives: Iterable[Redrive],
) -> tuple[Sighting, ...]:
    return tuple(
        sorted(
            (_sighting(row, batches, branches, redrives) for row in found),
            key=lambda s: (
                s.batch.sequence if s.batch else 0,
                s.position,
                s.offset,
                s.output or "",
            ),
        )
    )


def _searched(
    pipeline: AuditedPipeline, searchable: Iterable[_Searchable]
) -> tuple[str, ...]:
    places = [
        f"the rows of {place.output.table}{place.database.place}"
        for place in searchable
    ]
    if any(output.kind.sends_messages for output in pipeline.outputs):
        places.append("messages that wait in the outbox")
    places.append("dead letters, late, expired, filtered and duplicate events")
    if pipeline.horizon_s is not None:
        places.append("the seen-ID catalog")
    return tuple(places)
