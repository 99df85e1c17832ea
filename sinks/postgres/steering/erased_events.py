"""Finds everything that belongs to the events to erase: every copy, in every table.

An ID leads to the positions of its copies, and a position leads to the ID of its
record. So all copies are found, whichever of the two is given first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    column_type,
    fetch,
    fetch_one,
)
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.protocol.errors import ConfigurationError

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


def find_where(
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
        table=output.identifier, condition=written(condition)
    )
    values = {"read_topics": _read_topics(connection, pipeline)}
    yield from map(_position, fetch(connection, statement, **values))


def written(condition: str) -> sql.Composable:
    """Put a user's condition into a statement that has parameters."""
    # psycopg trusts the text of an SQL object. A user who may erase may run any
    # statement anyway, and a second statement does not fit into this one.
    return sql.SQL(condition.replace("%", "%%"))


def find_copies(
    connection: Connection[TupleRow], pipeline: AuditedPipeline, found: ErasedEvents
) -> None:
    """Add every copy of the events that were found so far, and their IDs.

    If IDs belong to their sources, the search does not follow an ID from a position,
    because an event of another source may have the same ID.
    """
    searches = [
        *_searched_outputs(connection, pipeline),
        *_searched_aside(),
    ]
    values = {
        "pipeline": pipeline.name,
        "read_topics": _read_topics(connection, pipeline),
    }
    while True:
        before = len(found.ids), len(found.positions)
        for search in searches:
            rows = fetch(connection, search.positions, ids=sorted(found.ids), **values)
            found.positions.update(map(_position, rows))
        for search in () if pipeline.id_has_source else searches:
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
    for output in pipeline.appends if pipeline.id_column is not None else ():
        assert pipeline.id_column is not None
        kind = column_type(connection, output, pipeline.id_column)
        if kind is None:
            continue
        column: sql.Composable = sql.Identifier(pipeline.id_column)
        # Without a cast, Postgres can use an index on the column.
        if kind == "bytea":
            column = sql.SQL("encode({}, 'hex')").format(column)
        elif kind != "text":
            column = sql.SQL("{}::text").format(column)
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


def output_named(pipeline: AuditedPipeline, table: str) -> AuditedOutput:
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
