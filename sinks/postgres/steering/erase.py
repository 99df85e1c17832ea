"""Erases a person's events: from tables, side tables, outbox and keyed state, at once.

An erasure deletes rows of append outputs, waiting messages and results. Rows of side
tables stay, because the ledger counts them, but their contents are blanked. Tombstones
are kept instead: the positions, and the keyed fingerprints of the IDs. Tasks of every
later claim leave out what is under a tombstone, so no repeat, replay or restore brings
it back.

An ID leads to the positions of its copies, and a position leads to the ID of its
record. So all copies are found, whichever of the two is given first.

Aggregates of windows stay as they are. An erasure cannot reach records in Kafka or
messages that were relayed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from psycopg import Connection, sql
from psycopg.errors import DataError, ProgrammingError
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.audit.checks.keyed_state import spellings
from tallyweir.sinks.postgres.audit.checks.written_outputs import (
    read_written_outputs,
)
from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
)
from tallyweir.sinks.postgres.outputs.outbox_table import MESSAGE_COLUMNS
from tallyweir.sinks.postgres.server.columns import columns_of
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.steering.act import ActRequest, acting
from tallyweir.sinks.postgres.steering.snapshot import is_held, read_snapshots
from tallyweir.sinks.postgres.tables.foreign_code import hold_tables, not_there
from tallyweir.sinks.postgres.tables.row_digest import row_hash, stored
from tallyweir.sinks.protocol.errors import ConfigurationError, RetryableError
from tallyweir.sinks.protocol.offsets import parse_position

_SQL = load_statements("tallyweir.sinks.postgres.steering", "erase.sql")

#: Side tables, and the columns that describe an event, except its position and reason.
#: All of these columns may be null, except for the detail of a dead letter.
ASIDE: Mapping[str, tuple[str, ...]] = {
    "dead_letter": ("event_id", "kafka_timestamp", "key", "payload", "detail"),
    "late_event": ("event_id", "event_time", "payload"),
    "expired_event": ("event_id", "event_time", "payload"),
    "duplicate_event": ("event_id",),
    "filtered_event": ("event_id",),
    "replaced_row": ("event_id",),
}

#: Topic, partition and offset.
Position = tuple[str, int, int]


@dataclass(slots=True, kw_only=True)
class ErasedEvents:
    """IDs as text, and the positions of their copies."""

    ids: set[str] = field(default_factory=set)
    positions: set[Position] = field(default_factory=set)

    @property
    def arrays(self) -> dict[str, object]:
        """The positions as arrays, for statements."""
        ordered = sorted(self.positions)
        return {
            "topics": [topic for topic, _, _ in ordered],
            "partitions": [partition for _, partition, _ in ordered],
            "offsets": [offset for _, _, offset in ordered],
        }


def _positions_where(
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    output: AuditedOutput,
    condition: str,
) -> Iterator[Position]:
    """Yield the positions of the rows of an append output that satisfy a condition.

    Args:
        connection: In the act's transaction.
        pipeline: The pipeline of the output.
        output: One of its append outputs, in the home.
        condition: SQL over the table's columns, as the operator has written it.
    """
    statement = _SQL["positions_where"].format(
        table=output.identifier, condition=_written(condition)
    )
    values = {"read_topics": _read_topics(connection, pipeline)}
    yield from map(_position, fetch(connection, statement, **values))


def _written(condition: str) -> sql.Composable:
    """Put a user's condition into a statement that has parameters."""
    # psycopg trusts the text of an SQL object. A user who may erase may run any
    # statement anyway, and a second statement does not fit into this one.
    return sql.SQL(condition.replace("%", "%%"))


def _find_copies(
    connection: Connection[TupleRow], pipeline: AuditedPipeline, found: ErasedEvents
) -> None:
    """Add every copy of the events that were found so far, and their IDs.

    If IDs belong to their sources, the search does not follow an ID from a position,
    because an event of another source may have the same ID. If the position is the ID,
    there are no copies.
    """
    searches = [
        *_searched_outputs(connection, pipeline),
        *_searched_aside(),
    ]
    values = {
        "pipeline": pipeline.name,
        "read_topics": _read_topics(connection, pipeline),
    }
    has_copies = not (pipeline.id_has_source or pipeline.id_is_position)
    while True:
        before = len(found.ids), len(found.positions)
        for search in searches:
            rows = fetch(connection, search.positions, ids=sorted(found.ids), **values)
            found.positions.update(map(_position, rows))
        for search in searches if has_copies else ():
            rows = fetch(connection, search.ids, **found.arrays, **values)
            found.ids.update(row["event_id"] for row in rows)
        if before == (len(found.ids), len(found.positions)):
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Statements that find positions by ID, and IDs by position, in one table."""

    positions: sql.Composed
    ids: sql.Composed


def _searched_outputs(
    connection: Connection[TupleRow], pipeline: AuditedPipeline
) -> Iterator[_Search]:
    for output in pipeline.appends:
        column = pipeline.id_in(columns_of(connection, output.identifier))
        if column is None:
            continue
        yield _Search(
            positions=_SQL["positions_of_ids"].format(
                table=output.identifier, event_id=column
            ),
            ids=_SQL["ids_at_positions"].format(
                table=output.identifier,
                event_id=column,
            ),
        )


def _searched_aside() -> Iterator[_Search]:
    for table in (*ASIDE, "outbox"):
        name = sql.Identifier(table)
        yield _Search(
            positions=_SQL["aside_positions"].format(table=name),
            ids=_SQL["aside_ids"].format(table=name),
        )


def _read_topics(
    connection: Connection[TupleRow], pipeline: AuditedPipeline
) -> list[str]:
    row = fetch_one(connection, _SQL["read_topics"], pipeline=pipeline.name)
    return list(row["topics"])


def _position(row: Mapping[str, object]) -> Position:
    topic, partition, offset = row.values()
    assert isinstance(topic, str)
    assert isinstance(partition, int)
    assert isinstance(offset, int)
    return topic, partition, offset


def _output_named(pipeline: AuditedPipeline, table: str) -> AuditedOutput:
    """Return an output that has a row for each event, or for each result.

    Raises:
        ConfigurationError: ``ERASE_NO_EVENTS``.
    """
    fit = [o for o in pipeline.outputs if o.kind.has_table and not o.kind.is_added_up]
    for output in fit:
        if output.table == table:
            return output
    raise ConfigurationError(
        "ERASE_NO_EVENTS",
        saw=f"{table} is no table of pipeline {pipeline.name} with a row for each "
        f"event; those are {_listed(output.table for output in fit)}.",
        why="Rows aggregated from many events do not belong to one person.",
        fix="Name one of those, or the events by --id.",
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


#: Takes the installation's key and an ID as text; returns fingerprints it may have.
Fingerprints = Callable[[bytes, str], Sequence[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequest:
    """The data to erase: at least one ID, condition, key or receipt.

    Attributes:
        act: The pipeline, and why.
        ids: Producers' IDs as text.
        has_source: Whether the fingerprints of the IDs are made with their source.
        where: A table of the pipeline, and a condition on its rows.
        keys: Keys of functions' state, as a person writes them.
        receipt: Tombstones of former erasures, to repeat these after a restore.
    """

    act: ActRequest
    ids: tuple[str, ...] = ()
    has_source: bool = False
    where: tuple[str, str] | None = None
    keys: tuple[str, ...] = ()
    receipt: Tombs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombs:
    """The traces that are kept of erased events; they name no person.

    Attributes:
        fingerprints: The fingerprints of their IDs, in hex.
        positions: The positions of their records in Kafka.
    """

    fingerprints: tuple[str, ...]
    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The effects of an erasure, done or planned.

    Attributes:
        epoch: The act's epoch.
        rows: How many rows were deleted or blanked, by where they were.
        ids: How many IDs it has put under a tombstone.
        positions: The positions of the records, which are still in Kafka.
    """

    epoch: int
    rows: Mapping[str, int]
    ids: int
    positions: tuple[Position, ...]


@dataclass(slots=True, kw_only=True)
class _Work:
    connection: Connection[TupleRow]
    pipeline: AuditedPipeline
    epoch: int
    found: ErasedEvents = field(default_factory=ErasedEvents)
    rows: dict[str, int] = field(default_factory=dict)

    def do(self, statement: sql.Composed | sql.SQL, kept_in: str) -> None:
        """Run a statement that erases, and count the rows it erased under a name."""
        row = fetch_one(
            self.connection,
            statement,
            pipeline=self.pipeline.name,
            epoch=self.epoch,
            kept_in=kept_in,
            **self.found.arrays,
        )
        if row["rows"]:
            self.rows[kept_in] = self.rows.get(kept_in, 0) + row["rows"]


def erase(
    connection: Connection[TupleRow],
    request: ErasureRequest,
    fingerprints: Fingerprints,
) -> Erasure:
    """Erase events and keys from everything that the home keeps of a pipeline.

    A repeated call changes nothing, but it erases what has come back by other ways.

    Args:
        connection: To the home, as a role that may change its ledger.
        request: What to erase.
        fingerprints: Computes the fingerprints of an ID.

    Raises:
        ConfigurationError: As ``acting``; ``ERASE_NOTHING_NAMED``,
            ``ERASE_NO_EVENTS``, ``ERASE_CONDITION``, ``ERASE_ELSEWHERE``,
            ``ERASE_SNAPSHOT_KEPT`` or ``ERASE_SOURCE_MISSING``.
        RetryableError: ``ERASE_IN_DOUBT``, or as ``acting``.

    Crash:
        Before the COMMIT nothing is erased and no driver is fenced; after it everything
        is erased, and no later claim lets it come back.
    """
    if not (request.ids or request.where or request.keys or request.receipt):
        raise ConfigurationError(
            "ERASE_NOTHING_NAMED",
            saw="No ID, condition, key or receipt is given.",
            why="An erasure must name the data to erase.",
            fix="Pass --id, --where, --key or --again.",
        )
    name = request.act.pipeline
    with acting(connection, request.act, snapshots_of=(name,)) as act:
        pipeline = read_pipeline(connection, name)
        hold_tables(connection, pipeline, needs_all=True)
        _check_all_here(connection, pipeline)
        _check_nothing_copied(connection, pipeline)
        work = _Work(connection=connection, pipeline=pipeline, epoch=act.epoch)
        _find(work, request)
        _erase_events(work)
        _erase_keys(work, request.keys)
        ids = _entomb(work, request, fingerprints)
        # Hot keys may be a person's, and only measure what was frequent.
        connection.execute(_SQL["forget_hot_keys"], {"pipeline": pipeline.name})
        # Sampled rows may be a person's too; the next batch has others.
        connection.execute(_SQL["forget_samples"], {"pipeline": pipeline.name})
        erasure = Erasure(
            epoch=act.epoch,
            rows=work.rows,
            ids=ids,
            positions=tuple(sorted(work.found.positions)),
        )
        act.detail.update(
            rows=dict(erasure.rows),
            ids=erasure.ids,
            positions=len(erasure.positions),
        )
    return erasure


def read_tombs(connection: Connection[TupleRow], pipeline: str) -> Tombs:
    """Return all tombstones of a pipeline, to keep them outside its database."""
    row = fetch_one(connection, _SQL["tombstones"], pipeline=pipeline)
    return Tombs(
        fingerprints=tuple(row["fingerprints"]),
        positions=tuple((t, p, o) for t, p, o in row["positions"]),
    )


def read_erasures(
    connection: Connection[TupleRow], pipeline: str
) -> list[dict[str, object]]:
    """Return every erasure: when, by whom, why, and how much."""
    return list(fetch(connection, _SQL["erasures"], pipeline=pipeline))


def _check_all_here(
    connection: Connection[TupleRow], pipeline: AuditedPipeline
) -> None:
    elsewhere = [o for o in pipeline.appends if set(o.databases) != {HOME}]
    if elsewhere:
        raise ConfigurationError(
            "ERASE_ELSEWHERE",
            saw="Rows of "
            + ", ".join(f"{o.table} are in {_others(o.databases)}" for o in elsewhere)
            + ".",
            why="An erasure is one transaction of the home database, so it cannot "
            "reach other databases.",
            fix="Keep tables of personal data in the home database.",
        )
    row = fetch_one(connection, _SQL["unresolved_branches"], pipeline=pipeline.name)
    if row["branches"]:
        raise RetryableError(
            "ERASE_IN_DOUBT",
            saw=f"{row['branches']} decided branches are not committed yet.",
            why="Their rows are not visible yet, and would appear after the erasure.",
            fix="Let the resolver finish (tallyweir indoubt list), then erase.",
        )


def _check_nothing_copied(
    connection: Connection[TupleRow], pipeline: AuditedPipeline
) -> None:
    snapshots = [one.name for one in read_snapshots(connection, pipeline.name)]
    if snapshots:
        raise ConfigurationError(
            "ERASE_SNAPSHOT_KEPT",
            saw=f"The pipeline has snapshots: {', '.join(snapshots)}.",
            why="Snapshots hold earlier keys and state, and none can be restored "
            "across an erasure.",
            fix=f"tallyweir snapshot drop {pipeline.name} NAME for each, then erase.",
        )


def _others(databases: Sequence[str]) -> str:
    return ", ".join(name for name in databases if name != HOME)


def _find(work: _Work, request: ErasureRequest) -> None:
    pipeline = work.pipeline
    if request.ids and pipeline.id_has_source and not request.has_source:
        raise ConfigurationError(
            "ERASE_SOURCE_MISSING",
            saw=f"Pipeline {pipeline.name} identifies events by ID and source.",
            why="The ID alone could match an event of another source.",
            fix="Pass --source, the event's ce_source.",
        )
    if pipeline.id_is_position:
        work.found.positions.update(map(_position_of, request.ids))
    else:
        work.found.ids.update(map(pipeline.canonical_id, request.ids))
    if request.receipt is not None:
        work.found.positions.update(request.receipt.positions)
    if request.where is not None:
        _find_by_condition(work, *request.where)
    _find_copies(work.connection, pipeline, work.found)


def _position_of(event_id: str) -> Position:
    found = parse_position(event_id)
    if found is None:
        raise ConfigurationError(
            "ERASE_NO_POSITION",
            saw=f"{event_id!r} is not a position.",
            why="The pipeline knows each event by its position in Kafka.",
            fix="Write it as orders[3]@1042: topic, partition and offset.",
        )
    place, offset = found
    return place.topic, place.partition, offset


def _find_by_condition(work: _Work, table: str, condition: str) -> None:
    output = _output_named(work.pipeline, table)
    try:
        if output.kind.has_event_rows:
            found = _positions_where(work.connection, work.pipeline, output, condition)
            work.found.positions.update(found)
            return
        if not is_held(work.connection, output.identifier):
            raise not_there(table)
        statement = _SQL["erase_results"].format(
            table=output.identifier,
            condition=_written(f"({condition})"),
            hash=_hash_of(work, output),
        )
        work.do(statement, output.table)
    except (ProgrammingError, DataError) as error:
        raise ConfigurationError(
            "ERASE_CONDITION",
            saw=f"Postgres refuses the condition on {table}: "
            f"{error.diag.message_primary}.",
            why="Without a valid condition, the rows to erase are unknown.",
            fix="Write what would follow WHERE in a SELECT from that table.",
        ) from error


def _hash_of(work: _Work, output: AuditedOutput) -> sql.Composable:
    """Return an expression for the share of a row in the digest of its batch."""
    told = read_written_outputs(work.connection, work.pipeline.name).get(output.table)
    if told is None:
        return sql.SQL("0")
    present = columns_of(work.connection, output.identifier)
    return row_hash(stored(c for c in told.columns if c.name in present))


def _erase_events(work: _Work) -> None:
    for output in work.pipeline.appends:
        work.do(_SQL["erase_rows"].format(table=output.identifier), output.table)
    messages = [(c, sql.Identifier("kept", c.name)) for c in MESSAGE_COLUMNS]
    statement = _SQL["erase_messages"].format(hash=row_hash(messages))
    work.do(statement, "outbox")
    for table, says in ASIDE.items():
        statement = _SQL["blank_aside"].format(
            table=sql.Identifier(table),
            blank=sql.SQL(", ").join(map(_blank, says)),
            said=sql.SQL("({})").format(sql.SQL(" OR ").join(map(_is_said, says))),
        )
        work.do(statement, f"aside:{table}")


def _blank(column: str) -> sql.Composed:
    nothing = "''" if column == "detail" else "NULL"
    return sql.SQL("{} = {}").format(sql.Identifier(column), sql.SQL(nothing))


def _is_said(column: str) -> sql.Composed:
    nothing = "<> ''" if column == "detail" else "IS NOT NULL"
    return sql.SQL("kept.{} {}").format(sql.Identifier(column), sql.SQL(nothing))


def _erase_keys(work: _Work, keys: Sequence[str]) -> None:
    spelled = [spelling for key in keys for spelling in spellings(key)]
    for table in ("keyed_state", "keyed_timer") if keys else ():
        gone = work.connection.execute(
            _SQL["erase_key"].format(table=sql.Identifier(table)),
            {"pipeline": work.pipeline.name, "keys": spelled},
        )
        if gone.rowcount:
            work.rows[table] = gone.rowcount


def _entomb(work: _Work, request: ErasureRequest, fingerprints: Fingerprints) -> int:
    """Write the tombstones; return the number of IDs."""
    key = fetch_one(work.connection, _SQL["fingerprint_key"])["fingerprint_key"]
    ids = {one for text in work.found.ids for one in fingerprints(bytes(key), text)}
    if request.receipt is not None:
        ids.update(map(bytes.fromhex, request.receipt.fingerprints))
    values = {"pipeline": work.pipeline.name, "epoch": work.epoch}
    work.connection.execute(_SQL["entomb_ids"], {**values, "fingerprints": sorted(ids)})
    work.connection.execute(_SQL["entomb_positions"], {**values, **work.found.arrays})
    return len(work.found.ids) or len(ids)


def format_receipt(pipeline: str, tombs: Tombs) -> str:
    """Write tombstones as one line of JSON."""
    return json.dumps(
        {
            "pipeline": pipeline,
            "fingerprints": tombs.fingerprints,
            "positions": tombs.positions,
        }
    )


def parse_receipt(pipeline: str, text: str) -> Tombs:
    """Read what ``format_receipt`` wrote.

    Raises:
        ConfigurationError: ``ERASE_RECEIPT``.
    """
    try:
        read = json.loads(text)
        if read["pipeline"] == pipeline:
            return Tombs(
                fingerprints=tuple(map(str, read["fingerprints"])),
                positions=tuple(
                    (str(topic), int(partition), int(offset))
                    for topic, partition, offset in read["positions"]
                ),
            )
        saw = f"The receipt is of pipeline {read['pipeline']}."
    except (ValueError, KeyError, TypeError):
        saw = "The file is not a receipt of erasures."
    raise ConfigurationError(
        "ERASE_RECEIPT",
        saw=saw,
        why="An erasure cannot be repeated from this file.",
        fix=f"Pass what tallyweir erasures {pipeline} --json printed.",
    )
