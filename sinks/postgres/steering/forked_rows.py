"""Copies what the home keeps of a pipeline to its fork, under the names of the fork.

This module lists which of Tallyweir's own tables are copied. A test compares the lists
with the schema, so that a new table must be put into one of them. A discard deletes the
rows of a pipeline by the same lists.

Every definition that is kept of a pipeline names the tables of its outputs, so a fork
and a switch rename them there. Drivers identify a version by the hash of its
definition, so the hash is computed again, in the way drivers compute it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from tallyweir.sinks.postgres.ledger.audited_pipeline import (
    AuditedPipeline,
    fetch,
    fetch_one,
)
from tallyweir.sinks.postgres.server.naming import revisions_table, runs_of_pipeline
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.steering", "fork.sql")

#: Own tables that are copied as they are, each after those that it refers to.
COPIED = (
    *("epoch_claim", "act", "pipeline_version", "partition_progress"),
    *("batch", "batch_partition", "offset_reset", "restore"),
    *("batch_output", "batch_measures", "accepted_gap", "batch_run", "batch_run_input"),
    "accepted_loss",
    *("dead_letter", "late_event", "expired_event", "duplicate_event"),
    *("filtered_event", "replaced_row", "redrive", "keyed_state", "keyed_timer"),
    *("erased_id", "erased_row", "erased_result"),
)
#: Own tables that are created in another way, in which a fork has no rows, or that are
#: about the operation of one pipeline; in the same order.
NOT_COPIED = (
    *("discarded_pipeline", "pipeline", "seen_id_run", "shadow_table"),
    *("batch_branch", "outbox", "relay_cursor", "pause", "drain", "receipt", "alert"),
    *("scaling_bounds", "scaling_decision", "driver_log", "snapshot", "profile"),
    *("sample", "pipeline_gauge"),
)
#: Columns of own tables that name an output's table.
OUTPUT_COLUMNS = ("output_table", "kept_in")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The rows to copy, and the pipeline that gets them.

    Attributes:
        pipeline: The pipeline whose rows are copied.
        fork: The pipeline that gets them.
        tables: By the tables of its outputs, the tables that they become; rows of
            other outputs are left out.
        moves: New numbers for the moves of its positions; two pipelines share none.
    """

    pipeline: str
    fork: str
    tables: Mapping[str, str]
    moves: Mapping[str, int]


def copy_pipeline(connection: Connection[TupleRow], old: str, new: str) -> int:
    """Register the fork as a copy of the other pipeline; return its number."""
    _copy_rows(connection, "pipeline", {"pipeline": old, "new": new})
    row = fetch_one(connection, _SQL["pipeline"], pipeline=new)
    return int(row["pipeline_number"])


def draw_moves(connection: Connection[TupleRow], pipeline: str) -> dict[str, int]:
    """Draw a number for each move of the pipeline's positions, in their order."""
    rows = fetch(connection, _SQL["draw_moves"], pipeline=pipeline)
    return {str(row["move"]): row["drawn"] for row in rows}


def copy_ours(connection: Connection[TupleRow], table: str, copy: Copy) -> None:
    """Copy the rows of an own table, without those of outputs that begin empty."""
    values = {
        "pipeline": copy.pipeline,
        "new": copy.fork,
        "tables": list(copy.tables),
        "shadows": json.dumps(dict(copy.tables)),
        "moves": json.dumps(dict(copy.moves)),
    }
    _copy_rows(connection, table, values)


def _copied_value(column: str) -> sql.Composable:
    if column == "pipeline":
        return sql.SQL("%(new)s")
    if column == "move":
        return sql.SQL("(%(moves)s::jsonb ->> move::text)::bigint")
    if column in OUTPUT_COLUMNS:
        return sql.SQL("coalesce(%(shadows)s::jsonb ->> {0}, {0})").format(
            sql.Identifier(column)
        )
    return sql.Identifier(column)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentTables:
    """The existing tables of some outputs of a pipeline, by the newest catalog.

    Attributes:
        of: The pipeline's number, and the outputs to which the tables belong.
        tables: In the order of their names.
    """

    of: tuple[int, tuple[str, ...]]
    tables: tuple[sql.Identifier, ...]


def find_present(
    connection: Connection[TupleRow], pipeline: AuditedPipeline, outputs: Iterable[str]
) -> PresentTables:
    """Find the tables of some outputs: results, revisions and open windows.

    If no driver has started with an output yet, it has no tables.
    """
    asked = tuple(outputs)
    named = {
        table.as_string(connection): table
        for output in pipeline.outputs
        if output.table in asked
        for table in output.kind.tables(output.table, pipeline.number)
    }
    rows = fetch(connection, _SQL["present_tables"], tables=list(named))
    return PresentTables(
        of=(pipeline.number, asked),
        tables=tuple(named[row["name"]] for row in rows),
    )


def copy_results(  # noqa: PLR0913, PLR0917 - from where to where
    connection: Connection[TupleRow],
    pipeline: AuditedPipeline,
    present: PresentTables,
    number: int,
    table: str,
    shadow: str,
) -> int:
    """Copy an output's tables; return the rows of the one that readers know."""

    def copy(source: sql.Identifier, target: sql.Identifier) -> int:
        if source not in present.tables:
            return 0
        return _copy_table(connection, source, target)

    kind = next(one.kind for one in pipeline.outputs if one.table == table)
    sources = kind.tables(table, pipeline.number)
    targets = kind.tables(shadow, number)
    rows, *_ = [copy(*pair) for pair in zip(sources, targets, strict=True)]
    return rows


def _copy_table(
    connection: Connection[TupleRow], table: sql.Identifier, shadow: sql.Identifier
) -> int:
    quoted = table.as_string(connection)
    row = fetch_one(connection, _SQL["column_names"], table=quoted)
    place = fetch_one(connection, _SQL["owner"], table=quoted)
    # Create it in the table's schema, whatever the search path says.
    there = sql.Identifier(place["schema"], bare_name(connection, shadow))
    connection.execute(_SQL["create_like"].format(shadow=there, table=table))
    connection.execute(
        _SQL["set_owner"].format(table=there, owner=sql.Identifier(place["owner"]))
    )
    if place["settings"]:
        settings = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value))
            for name, value in place["settings"].items()
        )
        connection.execute(_SQL["set_storage"].format(table=there, settings=settings))
    copied = connection.execute(
        _SQL["copy_table"].format(
            shadow=there, table=table, columns=_listed(row["columns"])
        )
    )
    _go_on_numbering(connection, quoted, there)
    return copied.rowcount


def _go_on_numbering(
    connection: Connection[TupleRow], table: str, shadow: sql.Identifier
) -> None:
    """Let identity columns of the shadow draw numbers that no copied row has."""
    tables = {"table": table, "shadow": shadow.as_string(connection)}
    for row in fetch(connection, _SQL["identities"], **tables):
        sequence = sql.Identifier(row["schema"], row["sequence"])
        fetch(
            connection,
            _SQL["go_on_numbering"].format(sequence=sequence),
            own=row["own"],
        )


def bare_name(connection: Connection[TupleRow], table: sql.Identifier) -> str:
    """Return a table's name without its schema; own tables have no dot in theirs."""
    return table.as_string(connection).rpartition(".")[2].strip('"')


def copy_seen_ids(
    connection: Connection[TupleRow], old: str, new: str, number: int
) -> None:
    """Copy the catalog into a partition, which is attached when it is complete."""
    runs = sql.Identifier("tallyweir", runs_of_pipeline(number))
    connection.execute(_SQL["create_runs"].format(runs=runs))
    for row in fetch(connection, _SQL["buckets"], pipeline=old):
        connection.execute(
            _SQL["create_bucket"], {"number": number, "bucket": row["bucket"]}
        )
    _copy_rows(connection, "seen_id_run", {"pipeline": old, "new": new}, target=runs)
    connection.execute(_SQL["attach_runs"].format(runs=runs, pipeline=sql.Literal(new)))


def _copy_rows(
    connection: Connection[TupleRow],
    table: str,
    values: Mapping[str, object],
    *,
    target: sql.Identifier | None = None,
) -> None:
    """Copy a pipeline's rows of an own table, into the same one without a target."""
    own = sql.Identifier("tallyweir", table)
    # Columns that the server does not fill by itself.
    columns = fetch_one(connection, _SQL["own_columns"], table=table)["columns"]
    kept = sql.SQL("true")
    if "output_table" in columns:
        kept = sql.SQL("output_table = ANY (%(tables)s)")
    elif "is_hidden" in columns:
        # Hidden rows belong to a merge that is under way.
        kept = sql.SQL("NOT is_hidden")
    connection.execute(
        _SQL["copy_rows"].format(
            target=target or own,
            table=own,
            columns=_listed(columns),
            values=sql.SQL(", ").join(map(_copied_value, columns)),
            kept=kept,
        ),
        values,
    )


def _listed(columns: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


_DEFINITIONS = load_statements("tallyweir.sinks.postgres.steering", "definitions.sql")


def rename_definitions(
    connection: Connection[TupleRow],
    pipeline: str,
    tables: Mapping[str, str],
    *,
    without: Collection[str] = (),
) -> None:
    """Rename tables in the definition of a pipeline, and in every version of it.

    Args:
        connection: In the act's transaction.
        pipeline: Its name, which the definitions then have too.
        tables: The new names of outputs' tables, by their present names.
        without: Tables of the outputs to leave out.
    """
    for row in fetch(connection, _DEFINITIONS["definition"], pipeline=pipeline):
        told = renamed(row["definition"], pipeline, tables, without=without)
        connection.execute(_DEFINITIONS["set_definition"], _values_of(pipeline, told))
    for row in fetch(connection, _DEFINITIONS["versions"], pipeline=pipeline):
        told = renamed(row["definition"], pipeline, tables, without=without)
        layout = row["layout"] and _renamed(row["layout"], tables, without)
        held = dict(row["held"])
        if "windows" in held:
            held["windows"] = {
                tables.get(table, table): of_table
                for table, of_table in held["windows"].items()
                if table not in without
            }
        connection.execute(
            _DEFINITIONS["set_version"],
            {
                **_values_of(pipeline, told),
                "version": row["version"],
                "layout": layout and Jsonb(layout),
                "held": Jsonb(held),
            },
        )


def renamed(
    definition: Mapping[str, Any],
    pipeline: str,
    tables: Mapping[str, str],
    *,
    without: Collection[str] = (),
) -> tuple[dict[str, Any], str]:
    """Return a definition under other names, and the hash that a driver gives it."""
    named = {**_renamed(definition, tables, without), "name": pipeline}
    text = json.dumps(named, sort_keys=True, separators=(",", ":"))
    return named, hashlib.sha256(text.encode()).hexdigest()


def _values_of(pipeline: str, told: tuple[dict[str, Any], str]) -> dict[str, object]:
    definition, definition_hash = told
    return {
        "pipeline": pipeline,
        "definition": Jsonb(definition),
        "definition_hash": definition_hash,
    }


def _renamed(
    described: Mapping[str, Any], tables: Mapping[str, str], without: Collection[str]
) -> dict[str, Any]:
    """Return a definition, or a layout, whose outputs have other tables."""
    return {
        **described,
        "outputs": [
            _renamed_output(output, tables.get(output["table"], output["table"]))
            for output in described["outputs"]
            if output["table"] not in without
        ],
    }


def _renamed_output(output: Mapping[str, Any], table: str) -> dict[str, Any]:
    renamed = {**output, "table": table}
    if renamed.get("revisions"):
        renamed["revisions"] = revisions_table(table)
    return renamed
