"""Outputs of functions that keep state for each key: result rows, state and timers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sinks.postgres.server.branch_names import HOME
from sinks.postgres.server.columns import POSITION_COLUMNS, Column

#: What phase 2b reads the staged events by.
KEY = Column(name="tallyweir_key", postgres_type="text")
SHARD = Column(name="tallyweir_shard", postgres_type="integer")
EVENT_TIME = Column(
    name="tallyweir_event_time", postgres_type="timestamp with time zone"
)

#: Which row of a key a result is, and the batch that brought it.
ORDINAL = Column(name="tallyweir_ordinal", postgres_type="integer")
SEQUENCE = Column(name="tallyweir_sequence", postgres_type="bigint")

#: Changes of state and timers, staged by phase 2b for all stateful outputs together.
KEYED_LOGS: Mapping[str, tuple[Column, ...]] = {
    "keyed_state": (
        Column(name="output_table", postgres_type="text"),
        Column(name="key", postgres_type="text"),
        Column(name="name", postgres_type="text"),
        Column(name="entry", postgres_type="text"),
        # put, delete, or clear for every entry of the name.
        Column(name="change", postgres_type="text"),
        Column(name="value", postgres_type="text"),
        Column(name="schema_version", postgres_type="integer"),
        Column(name="expires_at", postgres_type="timestamp with time zone"),
    ),
    "keyed_timer": (
        Column(name="output_table", postgres_type="text"),
        Column(name="key", postgres_type="text"),
        Column(name="name", postgres_type="text"),
        Column(name="shard", postgres_type="integer"),
        Column(name="clock", postgres_type="text"),
        # None for a timer that has fired or is cancelled.
        Column(name="fires_at", postgres_type="timestamp with time zone"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedTable:
    """One row for each that a function returns, beside what it keeps.

    Attributes:
        table: Where the rows go, in the home.
        staging_table: Where phase one puts the function's events.
        event_columns: What the function gets of each event.
        key: The columns that make its keys.
        columns: What it returns.
    """

    table: str
    staging_table: str
    event_columns: tuple[Column, ...]
    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    #: As the ledger says it.
    kind: ClassVar[str] = "stateful"

    @property
    def branches(self) -> tuple[str, ...]:
        """Who publishes it: the home, which has the state."""
        return (HOME,)

    @property
    def staging_columns(self) -> tuple[Column, ...]:
        return (*self.event_columns, *POSITION_COLUMNS, EVENT_TIME, KEY, SHARD)

    @property
    def rows_staging_table(self) -> str:
        """Where phase 2b puts the result rows."""
        return f"{self.staging_table}_rows"

    @property
    def rows_staging_columns(self) -> tuple[Column, ...]:
        return (*self.key, *self.columns, ORDINAL)

    @property
    def result_columns(self) -> tuple[Column, ...]:
        return (*self.rows_staging_columns, SEQUENCE)

    @property
    def tables(self) -> dict[str, tuple[Column, ...]]:
        """Return what readers see, by table."""
        return {self.table: self.result_columns}
