"""Describes the tables of a stateful output in Postgres."""

from __future__ import annotations

from collections.abc import Mapping

from tallyweir.schemas.pipeline.outputs.stateful import RESULT_TYPES, Stateful
from tallyweir.sinks.postgres.outputs.key_text import KEY_TYPES
from tallyweir.sinks.postgres.outputs.keyed_table import KeyedTable
from tallyweir.sinks.postgres.server.columns import Column
from tallyweir.sinks.protocol.errors import ConfigurationError


def keyed_table(
    output: Stateful,
    staging: str,
    event_columns: tuple[Column, ...],
    types: Mapping[str, str],
) -> KeyedTable:
    """Describe a stateful output to its home database.

    Args:
        output: The output.
        staging: Staging table of its events.
        event_columns: Columns of events that its function gets.
        types: Postgres types of all columns of an event.

    Raises:
        ConfigurationError: ``KEY_TYPE``: values of a key could have two spellings.
    """
    for name in output.key:
        if types[name] not in KEY_TYPES:
            raise ConfigurationError(
                "KEY_TYPE",
                saw=f"The key column {name} of {output.table} is {types[name]}.",
                why="Keys are stored as text, so each key must have exactly one "
                "spelling.",
                fix="Convert it in a transform to one of "
                f"{', '.join(sorted(KEY_TYPES))}.",
            )
    return KeyedTable(
        table=output.table,
        staging_table=staging,
        event_columns=event_columns,
        key=tuple(Column(name=n, postgres_type=types[n]) for n in output.key),
        columns=tuple(
            Column(name=name, postgres_type=RESULT_TYPES[kind])
            for name, kind in output.columns.items()
        ),
    )
