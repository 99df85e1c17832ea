"""Renames the tables of outputs in every definition that is kept of a pipeline.

Drivers identify a version by the hash of its definition, so the hash is computed again,
in the way drivers compute it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from psycopg import Connection
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from tallyweir.sinks.postgres.ledger.audited_pipeline import fetch
from tallyweir.sinks.postgres.server.naming import revisions_table
from tallyweir.sinks.postgres.server.statements import load_statements

_SQL = load_statements("tallyweir.sinks.postgres.steering", "definitions.sql")


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
    for row in fetch(connection, _SQL["definition"], pipeline=pipeline):
        told = renamed(row["definition"], pipeline, tables, without=without)
        connection.execute(_SQL["set_definition"], _values(pipeline, told))
    for row in fetch(connection, _SQL["versions"], pipeline=pipeline):
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
            _SQL["set_version"],
            {
                **_values(pipeline, told),
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


def _values(pipeline: str, told: tuple[dict[str, Any], str]) -> dict[str, object]:
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
            _output(output, tables.get(output["table"], output["table"]))
            for output in described["outputs"]
            if output["table"] not in without
        ],
    }


def _output(output: Mapping[str, Any], table: str) -> dict[str, Any]:
    renamed = {**output, "table": table}
    if renamed.get("revisions"):
        renamed["revisions"] = revisions_table(table)
    return renamed
