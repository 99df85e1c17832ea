"""What a task of phase 2b reads: staged events, the state of their keys, due timers.

These do not change until the batch is published: the events are staged and voted for,
and only publish transactions of this driver change state and timers. A superseded
driver may read anything, because its votes have no effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from tallyweir.sinks.postgres.outputs.keyed_table import KEY, KeyedTable
from tallyweir.sinks.postgres.server.columns import names
from tallyweir.sinks.postgres.server.naming import TableNames
from tallyweir.sinks.postgres.server.sqlstate import translated
from tallyweir.sinks.postgres.server.statements import load_statements
from tallyweir.sinks.postgres.staging.attempt_register import transactions_of
from tallyweir.sinks.protocol.identity import Attempt

_SQL = load_statements("tallyweir.sinks.postgres.publish", "keyed.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValue:
    """A value, or an entry of a list or a map, as it is stored."""

    entry: str
    value: str
    schema_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTimer:
    """A timer that is to fire in this batch."""

    key: str
    name: str
    clock: str
    fires_at: datetime


class KeyedStore:
    """One stateful output, as one task sees it.

    Args:
        connection: A connection to the home.
        pipeline: Its name.
        output: The output.
        watermark: The watermark after the batch; state that expires by then is gone.
    """

    def __init__(
        self,
        connection: psycopg.Connection[TupleRow],
        pipeline: str,
        output: KeyedTable,
        *,
        watermark: datetime | None,
    ) -> None:
        self._connection = connection
        self._output = output
        self._values = {
            "pipeline": pipeline,
            "output_table": output.table,
            # Without a watermark no state expires, and no event-time timer is due.
            "watermark": watermark,
        }

    def read_events(
        self, tables: TableNames, attempts: Sequence[Attempt], shards: Sequence[int]
    ) -> list[tuple[Any, ...]]:
        """Read voted events of some shards, ordered by key and time, the key last."""
        columns = (*self._output.staging_columns[:-2], KEY)
        statement = _SQL["read_staged_events"].format(
            columns=names(columns), staging=tables.staging(self._output.staging_table)
        )
        with translated("reading staged events"):
            values = {
                "transactions": transactions_of(self._connection, tables, attempts),
                "shards": list(shards),
            }
            return self._connection.execute(statement, values).fetchall()

    def read_due_timers(
        self, shards: Sequence[int], *, now: datetime | None
    ) -> list[DueTimer]:
        """Read the timers of some shards that are due, by key and time.

        Args:
            shards: The shards whose timers are read.
            now: The server's time. If None, timers of the server's clock are left out.
        """
        with translated("reading timers"):
            rows = self._connection.execute(
                _SQL["read_due_timers"],
                {**self._values, "shards": list(shards), "now": now},
            ).fetchall()
        return [
            DueTimer(key=key, name=name, clock=clock, fires_at=fires_at)
            for key, name, clock, fires_at in rows
        ]

    def read_values(
        self, keys: Collection[str], state: Collection[str]
    ) -> dict[tuple[str, str], StoredValue]:
        """Read the single values of many keys at once, by key and name."""
        values = {**self._values, "keys": list(keys), "names": list(state)}
        with translated("reading keyed state"):
            rows = self._connection.execute(_SQL["read_values"], values).fetchall()
        return {
            (key, name): StoredValue(entry="", value=value, schema_version=version)
            for key, name, value, version in rows
        }

    def read_entry(self, key: str, name: str, entry: str) -> StoredValue | None:
        """Read one entry of a map."""
        found = list(self._read("read_entry", key=key, name=name, entry=entry))
        return found[0] if found else None

    def read_entries(self, key: str, name: str) -> list[StoredValue]:
        """Read all entries of a list or a map, in order."""
        return list(self._read("read_entries", key=key, name=name))

    def _read(self, statement: str, **values: str) -> Iterator[StoredValue]:
        with translated("reading keyed state"):
            rows = self._connection.execute(
                _SQL[statement], {**self._values, **values}
            ).fetchall()
        for entry, value, version in rows:
            yield StoredValue(entry=entry, value=value, schema_version=version)
