"""A window's aggregates, kept as mergeable *partials*.

A task computes the partials of its events, publishing merges them into the state
table, and the result columns are computed from the merged partials.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from psycopg import sql

from sinks.postgres.columns import Column, type_name

#: Merges that compare, text by its bytes.
_ORDERED = frozenset({"least", "greatest"})


class AggregateFunction(Enum):
    """Aggregates whose partials merge exactly."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """One mergeable part of an aggregate: a count, a sum, a minimum or a maximum."""

    column: Column
    merge: str
    #: Of ``first`` and ``last``: the column of places, whose least or greatest wins.
    place: str | None = None
    is_place: bool = False

    @property
    def combined(self) -> sql.Composable:
        """The partials of several tasks, combined within one group."""
        name: sql.Composable = sql.Identifier(self.column.name)
        if self.place is not None:
            direction = sql.SQL("ASC" if self.merge == "first" else "DESC")
            return sql.SQL("(array_agg({} ORDER BY {} {} NULLS LAST))[1]").format(
                name, _bytewise(self.place), direction
            )
        if self.merge != "add" and self.column.postgres_type == "text":
            name = _bytewise(self.column.name)
        function = {"add": "sum", "least": "min", "greatest": "max"}[self.merge]
        return sql.SQL("{}({})::{}").format(
            sql.SQL(function), name, type_name(self.column.postgres_type)
        )

    @property
    def merged(self) -> sql.Composable:
        """The stored partial merged with the one that arrives."""
        name = sql.Identifier(self.column.name)
        if self.merge == "add":
            return sql.SQL("{n} = state.{n} + EXCLUDED.{n}").format(n=name)
        if self.place is not None:
            comparison = sql.SQL("<" if self.merge == "first" else ">")
            return sql.SQL(
                "{n} = CASE WHEN state.{p} IS NULL OR EXCLUDED.{p} {c} state.{p} "
                "THEN EXCLUDED.{n} ELSE state.{n} END"
            ).format(n=name, p=sql.Identifier(self.place), c=comparison)
        function = sql.SQL("LEAST" if self.merge == "least" else "GREATEST")
        return sql.SQL("{n} = {f}(state.{n}, EXCLUDED.{n})").format(n=name, f=function)

    @property
    def definition(self) -> sql.Composable:
        if self.merge in _ORDERED and self.column.postgres_type == "text":
            # Tasks compare text by bytes; the database must not use a language's
            # order, or the minimum would depend on how events fell into batches.
            return sql.SQL('{} COLLATE "C"').format(self.column.definition)
        return self.column.definition


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAggregate:
    """A result column of a window and the partials behind it."""

    column: Column
    function: AggregateFunction
    #: Position in the output; partials are named by it.
    number: int
    #: Type of the sum, the minimum or the maximum.
    partial_type: str

    @property
    def partials(self) -> tuple[Partial, ...]:
        match self.function:
            case AggregateFunction.COUNT:
                return (self._partial("count", "bigint", "add"),)
            case AggregateFunction.SUM | AggregateFunction.AVG:
                return (
                    self._partial("sum", self.partial_type, "add"),
                    self._partial("count", "bigint", "add"),
                )
            case AggregateFunction.MIN:
                return (self._partial("min", self.partial_type, "least"),)
            case AggregateFunction.MAX:
                return (self._partial("max", self.partial_type, "greatest"),)
            case AggregateFunction.FIRST:
                return self._placed("first", "least")
            case AggregateFunction.LAST:
                return self._placed("last", "greatest")

    @property
    def final(self) -> sql.Composable:
        """The result column computed from merged partials; NULL without values."""
        parts = [sql.Identifier(partial.column.name) for partial in self.partials]
        kind = type_name(self.column.postgres_type)
        match self.function:
            case AggregateFunction.SUM:
                return sql.SQL("CASE WHEN {1} > 0 THEN {0}::{2} END").format(
                    *parts, kind
                )
            case AggregateFunction.AVG:
                return sql.SQL("({0}::{2} / nullif({1}, 0)::{2})").format(*parts, kind)
            case _:
                return parts[0]

    def _placed(self, part: str, place: str) -> tuple[Partial, Partial]:
        """Return a value, and where it stands among the events of the group."""
        at = self._partial("place", "text", place)
        value = self._partial(part, self.partial_type, part)
        return (
            replace(value, place=at.column.name),
            replace(at, is_place=True),
        )

    def _partial(self, part: str, postgres_type: str, merge: str) -> Partial:
        # The prefix that pipelines may not use keeps it apart from their columns.
        name = f"tallyweir_a{self.number}_{part}"
        return Partial(
            column=Column(name=name, postgres_type=postgres_type), merge=merge
        )


def _bytewise(column: str) -> sql.Composable:
    return sql.SQL('{} COLLATE "C"').format(sql.Identifier(column))
