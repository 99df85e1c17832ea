"""Compares a pipeline with its fork, output by output, over what both have read.

Rows of events are compared by their positions, windows by their groups once both
pipelines have settled them, and rows of functions as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedOutput,
    AuditedPipeline,
    fetch,
    fetch_one,
    read_pipeline,
    snapshot,
)
from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.tables.foreign_code import keep_tables
from tallyweir.sinks.postgres.tables.shadow_tables import read_shadow_tables
from tallyweir.sinks.protocol.errors import ConfigurationError

_SQL = load_statements("tallyweir.sinks.postgres.steering", "diff.sql")

_POSITION = ("kafka_topic", "kafka_partition", "kafka_offset")
#: Columns that tell when a row came, or in which batch, and not what it says.
_OF_BATCHES = frozenset({"pane", "tallyweir_sequence"})
#: How many rows are shown of each output.
SAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputDiff:
    """One output in front, and in the shadow.

    Attributes:
        table: The table of the pipeline in front.
        shadow: The fork's table; None if the fork has no such output.
        equal: Rows that are the same.
        different: Rows of one key that are not the same.
        only_front: Rows that only the pipeline in front has.
        only_shadow: Rows that only the fork has.
        samples: Some rows that are not equal: the key, and what each side has.
        note: What could not be compared.
    """

    table: str
    shadow: str | None
    equal: int = 0
    different: int = 0
    only_front: int = 0
    only_shadow: int = 0
    samples: Sequence[Mapping[str, Any]] = ()
    note: str = ""

    @property
    def is_equal(self) -> bool:
        return not (self.different or self.only_front or self.only_shadow)


def diff(
    connection: Connection[TupleRow], front: str, shadowing: str
) -> tuple[OutputDiff, ...]:
    """Compare two pipelines in one snapshot.

    Args:
        connection: To the home, outside a transaction. Nothing is written.
        front: The pipeline whose rows readers find.
        shadowing: The pipeline that works in its shadow.

    Raises:
        ConfigurationError: ``PIPELINE_UNKNOWN`` or ``DIFF_NOT_SHADOWED``.
        RetryableError: The server went away.
    """
    with snapshot(connection, doing="comparing two pipelines"):
        pipeline = read_pipeline(connection, front)
        other = read_pipeline(connection, shadowing)
        for one in (pipeline, other):
            keep_tables(connection, one)
        shadows = read_shadow_tables(connection, shadowing)
        if not shadows:
            raise ConfigurationError(
                "DIFF_NOT_SHADOWED",
                saw=f"{shadowing} does not work in the shadow of another pipeline.",
                why="Only shadow tables correspond to the tables of another pipeline.",
                fix=f"Name a fork; tallyweir fork {front} NEW makes one.",
            )
        values = _bounds(connection, front, shadowing)
        return tuple(
            _compare(connection, output, shadows, other, values)
            for output in pipeline.outputs
        )


def _bounds(
    connection: Connection[TupleRow], front: str, shadowing: str
) -> dict[str, Any]:
    both = {"front": front, "shadowing": shadowing}
    read = fetch(connection, _SQL["both_read"], **both)
    return {
        "topics": [row["topic"] for row in read],
        "partitions": [row["partition"] for row in read],
        "offsets": [row["next_offset"] for row in read],
        "apart": sum(row["apart"] for row in read),
        "watermark": fetch_one(connection, _SQL["watermark"], **both)["watermark"],
        "samples": SAMPLES,
    }


def _compare(
    connection: Connection[TupleRow],
    output: AuditedOutput,
    shadows: Mapping[str, str],
    other: AuditedPipeline,
    values: Mapping[str, Any],
) -> OutputDiff:
    shadow = shadows.get(output.table)
    there = next((one for one in other.outputs if one.table == shadow), None)
    if shadow is None or there is None:
        return OutputDiff(
            table=output.table, shadow=None, note="the fork has no such output"
        )
    columns, others = _shared_columns(connection, output.table, shadow)
    bound: sql.SQL = _SQL["read_by_both"]
    keys: tuple[str, ...] = _POSITION
    note = f"not compared: {', '.join(others)}" if others else ""
    if output.kind.has_windows:
        bound = _SQL["settled"]
        keys = ("window_start", "window_end", *output.by)
    elif not output.kind.has_event_rows:
        bound, keys = sql.SQL("true"), ()
        if values["apart"]:
            note = (
                "rows of functions are compared as they are, although one pipeline "
                "has read more"
            )
    if not set(keys) <= set(columns):
        return OutputDiff(table=output.table, shadow=shadow, note="the groups differ")
    said = [c for c in columns if c not in keys and c not in _OF_BATCHES]
    row = fetch_one(
        connection,
        _SQL["compared"].format(
            ours=output.identifier,
            theirs=table_identifier(shadow),
            keys=_as_json(keys),
            said=_as_json(said),
            bound=bound,
        ),
        **values,
    )
    return OutputDiff(table=output.table, shadow=shadow, note=note, **row)


def _shared_columns(
    connection: Connection[TupleRow], table: str, shadow: str
) -> tuple[list[str], list[str]]:
    """Return the columns that are the same in both tables, and all others."""
    tables = {
        "ours": table_identifier(table).as_string(connection),
        "theirs": table_identifier(shadow).as_string(connection),
    }
    shared = [r["name"] for r in fetch(connection, _SQL["shared_columns"], **tables)]
    every = {r["name"] for r in fetch(connection, _SQL["columns"], **tables)}
    return shared, sorted(every.difference(shared))


def _as_json(columns: Sequence[str]) -> sql.Composed:
    """Return some columns of a row as one JSON object."""
    pairs = [
        sql.SQL("{}, {}").format(sql.Literal(name), sql.Identifier("kept", name))
        for name in columns
    ]
    return sql.SQL("jsonb_build_object({})").format(sql.SQL(", ").join(pairs))
