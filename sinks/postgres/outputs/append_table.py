"""Result tables with one row per event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sinks.postgres.server.branch_names import HOME
from sinks.postgres.server.columns import POSITION_COLUMNS, Column

#: What a task's receipt says.
COPIED_ROWS = Column(name="copied_rows", postgres_type="bigint")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendTable:
    """One row per event.

    Attributes:
        table: Where the rows go, in the database of each branch.
        staging_table: Where tasks put them first; see ``staged_for``.
        event_columns: What the events give; their position is added.
        branches: Who publishes them. With several, each row belongs to one.
        copied_by_tasks: Whether tasks copy rows into the table themselves, at least
            once, and stage only receipts of how many.
    """

    table: str
    staging_table: str
    event_columns: tuple[Column, ...]
    branches: tuple[str, ...] = (HOME,)
    copied_by_tasks: bool = False
    #: As the ledger says it.
    kind: ClassVar[str] = "append"

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.event_columns, *POSITION_COLUMNS)

    @property
    def staging_columns(self) -> tuple[Column, ...]:
        return (COPIED_ROWS,) if self.copied_by_tasks else self.columns

    @property
    def tables(self) -> dict[str, tuple[Column, ...]]:
        """Return what readers see, by table."""
        return {self.table: self.columns}
