"""A kind of output that the product does not have: one row per batch, with a sum.

It is all that a new kind needs of a pipeline in Python, but for its name in the
ledger's check of ``batch_output.kind``. It has no keys for pipeline files. The
registries learn of it when this module is imported: by a pipeline's file in the driver,
and by Spark's workers, which import it for the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import TupleRow

from tallyweir.schemas.pipeline.checks.databases import InHome
from tallyweir.schemas.pipeline.checks.problems import Problem
from tallyweir.schemas.pipeline.outputs.pipeline_output import KnownColumns
from tallyweir.schemas.pipeline.outputs.pipeline_output import Output as DeclaredOutput
from tallyweir.sinks.postgres.ledger.output_kinds import KINDS, OutputKind
from tallyweir.sinks.postgres.outputs.keyed_table import SEQUENCE
from tallyweir.sinks.postgres.outputs.output import (
    MovedRows,
    Output,
    ReplayPart,
    StagedField,
    VotedRows,
    fields_of_events,
    row_refusals,
)
from tallyweir.sinks.postgres.outputs.result_tables import create_or_check
from tallyweir.sinks.postgres.server.columns import (
    POSITION_COLUMNS,
    Column,
    names_and_types,
    table_identifier,
)
from tallyweir.sinks.postgres.server.naming import HOME
from tallyweir.sinks.postgres.staging.staging_writer import TakesRows
from tallyweir.sinks.postgres.tables.row_digest import RESULTS, change_digested, stored
from tallyweir.sinks.protocol.votes import OutputTally
from tallyweir.spark_jobs.tables.layout_builder import (
    DeclaredEvents,
    output_table,
    staging_table,
)
from tallyweir.spark_jobs.task.staged_rows import StagedRows

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalOutput(InHome, DeclaredOutput):
    """One row per batch, with the sum of a column, as a pipeline declares it.

    Attributes:
        table: Result table; made when missing.
        column: The column of whole numbers to add up.
        where: Spark SQL; the output takes only events for which it is true.
    """

    kind: ClassVar[str] = TOTAL.name

    table: str
    column: str
    where: str | None = None

    def check_columns(self, known: KnownColumns) -> Iterator[Problem]:
        yield from known.check_all((self.column,), "column")


@output_table.register
def _(output: TotalOutput, number: int, declared: DeclaredEvents) -> BatchTotals:
    (column,) = declared.columns((output.column,))
    return BatchTotals(
        table=output.table, staging_table=staging_table(number), number=column
    )


def _write_totals(
    staged: StagedRows, output: BatchTotals, staging: TakesRows, number: int
) -> OutputTally:
    taken = staged.taken_by(number)
    chosen = staged.events.table.filter(pa.array(taken))
    rows = pa.table(
        [chosen.column(output.number.name), *staged.positions(chosen)],
        names=[column.name for column in output.staging_columns],
    )
    staging.copy(HOME, output.staging_table, output.staging_columns, rows)
    return staged.tally(number, taken, rows.num_rows)


# Kinds of the product register inside of the class.
vars(StagedRows)["write_output"].register(BatchTotals, _write_totals)
