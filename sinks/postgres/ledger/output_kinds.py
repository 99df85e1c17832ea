"""What the ledger's names of kinds of outputs mean to audits, acts and updates.

The ledger keeps of each output its table and the name of its kind. So audits and acts
need neither the pipeline's file nor the classes that stage and move rows: they ask the
kind, and never compare its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from tallyweir.sinks.postgres.server.columns import table_identifier
from tallyweir.sinks.postgres.server.naming import revisions_table, state_table
from tallyweir.sinks.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputKind:
    """What is true of every output of a kind.

    Attributes:
        name: The kind's name in the ledger.
        has_table: Whether readers see its rows in a table of its name.
        sends_messages: Whether its rows leave for Kafka through the outbox.
        has_event_rows: Whether each row is of one event and has its position. An event
            whose row the table refuses is dead.
        has_batch_rows: Whether batches only add rows, each with its batch's number in
            ``tallyweir_sequence``.
        has_windows: Whether its rows are those of windows, with state for open ones.
        keeps_keys: Whether it keeps state and timers by key.
        is_updated: Whether batches update and delete rows of its table, not only insert
            some.
        is_added_up: Whether a row is made of several events that nothing can take out
            of it again.
        may_stay_empty: Whether its table may be empty after batches that had events
            for it.
        is_counted_by_task: Whether the rows that a batch stages depend on how Spark
            divides its events among tasks.
    """

    name: str
    has_table: bool = True
    sends_messages: bool = False
    has_event_rows: bool = False
    has_batch_rows: bool = False
    has_windows: bool = False
    keeps_keys: bool = False
    is_updated: bool = False
    is_added_up: bool = False
    may_stay_empty: bool = False
    is_counted_by_task: bool = False

    def tables(
        self, table: str, pipeline_number: int, *, installation: str | None = None
    ) -> Iterator[sql.Identifier]:
        """Yield every table that an output of this kind may have in a database.

        Args:
            table: The output's table.
            pipeline_number: The pipeline's number in its home.
            installation: The home's installation, in all databases except the home.
        """
        if self.has_table:
            yield table_identifier(table)
        if self.has_windows:
            yield table_identifier(revisions_table(table))
            yield state_table(pipeline_number, table, installation=installation)


APPEND = OutputKind(name="append", has_event_rows=True)
WINDOW = OutputKind(
    name="window",
    has_windows=True,
    is_updated=True,
    is_added_up=True,
    may_stay_empty=True,
    is_counted_by_task=True,
)
STATEFUL = OutputKind(name="stateful", has_batch_rows=True, keeps_keys=True)
#: A join is a function with state, but has a name of its own in definitions.
JOIN = replace(STATEFUL, name="join")
OUTBOX = OutputKind(name="outbox", has_table=False, sends_messages=True)

#: Every kind by its name in the ledger; a new kind is added here.
KINDS = {kind.name: kind for kind in (APPEND, WINDOW, STATEFUL, JOIN, OUTBOX)}


def kind_of(described: Mapping[str, Any]) -> OutputKind:
    """Return the kind of an output that a definition or a layout describes.

    Raises:
        ConfigurationError: ``OUTPUT_KIND_UNKNOWN``.
    """
    name = described["kind"]
    if name not in KINDS:
        raise ConfigurationError(
            "OUTPUT_KIND_UNKNOWN",
            saw=f"The ledger has an output {described.get('table')} of kind {name}; "
            f"this version knows {', '.join(sorted(KINDS))}.",
            why="This version cannot check, move or take back rows of a kind that it "
            "does not know.",
            fix="Use the version of Tallyweir that the pipeline's driver has.",
        )
    return KINDS[name]
