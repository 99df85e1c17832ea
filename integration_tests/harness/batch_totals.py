"""A kind of output that the product does not have: one row per batch, with a sum.

It is all that a new kind needs in Postgres, but for its name in the ledger's check of
``batch_output.kind``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from sinks.postgres.ledger.output_kinds import KINDS, OutputKind
from sinks.postgres.outputs.keyed_table import SEQUENCE
from sinks.postgres.outputs.output import Output, StagedField, fields_of_events
from sinks.postgres.outputs.replay_part import ReplayPart
from sinks.postgres.outputs.result_tables import create_or_check
from sinks.postgres.outputs.voted_rows import MovedRows, VotedRows, row_refusals
from sinks.postgres.server.columns import (
    POSITION_COLUMNS,
    Column,
    names_and_types,
    table_identifier,
)
from sinks.postgres.tables.row_digest import RESULTS, change_digested, stored

TOTAL = OutputKind(name="total", has_batch_rows=True, is_added_up=True)
KINDS[TOTAL.name] = TOTAL

_MOVE = sql.SQL(
    "INSERT INTO {target} (total, tallyweir_sequence) "
    "SELECT sum({number}), %(sequence)s FROM {staging} "
    "WHERE xmin = ANY(%(transactions)s::xid[])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTotals(Output):
    """One row per batch: the sum of a column.

    Attributes:
        number: The column.
    """

    number: Column
    kind: ClassVar[OutputKind] = TOTAL

    @property
    def read_columns(self) -> tuple[Column, ...]:
        return (self.number,)

    @property
    def staging_columns(self) -> tuple[Column, ...]:
        return (self.number, *POSITION_COLUMNS)

    @property
    def staged_fields(self) -> tuple[StagedField, ...]:
        return fields_of_events(self.read_columns)

    @property
    def result_columns(self) -> tuple[Column, ...]:
        return (Column(name="total", postgres_type="numeric"), SEQUENCE)

    @property
    def tables(self) -> dict[str, tuple[Column, ...]]:
        return {self.table: self.result_columns}

    def create(
        self,
        connection: psycopg.Connection[TupleRow],
        state: Callable[[str], sql.Identifier],
    ) -> None:
        del state
        create_or_check(connection, self.table, self.result_columns)

    def move(self, voted: VotedRows, staged: str) -> MovedRows:
        rows = voted.count(staged)
        voted.check_moved(staged, rows)
        if not rows:
            return MovedRows()
        statement = _MOVE.format(
            target=table_identifier(self.table),
            number=sql.Identifier(self.number.name),
            staging=voted.tables.staging(staged),
        )
        with row_refusals():
            moved = change_digested(
                voted.connection, statement, stored(self.result_columns), voted.values
            )
        voted.check_types(self.tables)
        return MovedRows(staged=rows, digests={RESULTS: moved})

    def described(self) -> dict[str, Any]:
        return {"columns": names_and_types(self.result_columns)}

    def replay_parts(self) -> Iterator[ReplayPart]:
        yield ReplayPart(
            name=self.table,
            table=self.table,
            keys=(SEQUENCE.name,),
            said=("total",),
        )
