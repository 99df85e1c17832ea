"""Outputs with one row for each event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from tallyweir.schemas.pipeline.checks.databases import (
    HOME,
    check_databases,
    check_split,
)
from tallyweir.schemas.pipeline.checks.names import (
    check_distinct,
    check_output_column,
    check_output_table,
)
from tallyweir.schemas.pipeline.checks.problems import (
    Problem,
    empty_value,
    raise_if_any,
)
from tallyweir.schemas.pipeline.document.file_keys import (
    Condition,
    Keys,
    OneOrMore,
    Text,
    Texts,
    WholeNumber,
    unnamed,
)
from tallyweir.schemas.pipeline.expressions.expressions import check_condition
from tallyweir.schemas.pipeline.outputs.pipeline_output import KnownColumns, Output
from tallyweir.sinks.protocol.column_names import stored_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Append(Output):
    """One row for each event.

    Attributes:
        table: Result table; made when missing.
        columns: Columns of the table; None for all that the event has.
        databases: Databases of the table; with several, each row is in one of them.
        shard_by: Fields of the event whose values choose one of several databases.
        branches: Number of parallel publish transactions in its one database.
        where: Spark SQL; the output takes only events for which it is true.
    """

    kind: ClassVar[str] = "append"
    has_event_rows: ClassVar[bool] = True

    table: str
    columns: tuple[str, ...] | None = None
    databases: tuple[str, ...] = (HOME,)
    shard_by: tuple[str, ...] = ()
    branches: int = 1
    where: str | None = None

    def __post_init__(self) -> None:
        raise_if_any("Append", self._find_problems())

    @property
    def transactions(self) -> int:
        return self.branches

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (*(self.columns or ()), *self.shard_by)

    def holds(self, column: str) -> bool:
        return self.columns is None or column in self.columns

    def check_columns(self, known: KnownColumns) -> Iterator[Problem]:
        if self.columns is not None:
            yield from known.check_all(self.columns, "columns")
            return
        for column in known.names:
            yield from check_output_column(column, ())

    def _find_problems(self) -> Iterator[Problem]:
        for problem in check_condition(self.where):
            yield problem.under("where")
        yield from check_output_table(self.table, ("table",))
        yield from check_databases(self.databases, ("databases",))
        yield from check_split(self.databases, self.shard_by, self.branches)
        if self.columns is None:
            return
        if not self.columns:
            yield empty_value(("columns",))
        stored = list(map(stored_name, self.columns))
        for index, column in enumerate(stored):
            yield from check_output_column(column, ("columns", index))
        yield from check_distinct(stored, "columns", ("columns",))


class AppendKeys(Keys[Append]):
    """The keys of ``append``."""

    part = Append
    stand_ins: ClassVar[Mapping[str, object]] = {"table": unnamed}

    table: Text
    columns: Texts | None = None
    databases: OneOrMore = Field(default=(HOME,), alias="database")
    shard_by: Texts = ()
    branches: WholeNumber = 1
    where: Condition | None = None
